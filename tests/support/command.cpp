#include "command.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace tenon::test {

std::vector<ProcessInfo> processes() {
  std::vector<ProcessInfo> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string stat, argument;
    std::getline(std::ifstream(entry.path() / "stat"), stat);
    const size_t behind_name = stat.rfind(')');
    if (behind_name == std::string::npos) continue;  // it ended meanwhile
    ProcessInfo info;
    pid_t parent = 0;
    std::istringstream(stat.substr(behind_name + 1)) >> info.state >> parent >> info.group;
    if (info.state == 'Z') continue;
    info.pid = std::stoi(name);
    std::ifstream line(entry.path() / "cmdline");
    while (std::getline(line, argument, '\0')) info.arguments.push_back(argument);
    out.push_back(info);
  }
  return out;
}

Command::Command(std::vector<std::string> argv, const std::string& folder,
                 const std::vector<std::string>& environment) {
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t defaults;  // a shell's background job would hand down an ignored SIGINT
  sigemptyset(&defaults);
  for (int signal : {SIGINT, SIGTERM, SIGQUIT, SIGPIPE}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  std::vector<std::string> strings = environment;
  for (char** entry = environ; *entry != nullptr; ++entry) strings.emplace_back(*entry);
  const auto pointers = [](std::vector<std::string>& from) {
    std::vector<char*> to;
    for (std::string& text : from) to.push_back(text.data());
    to.push_back(nullptr);
    return to;
  };
  const int failed = posix_spawn(&pid_, argv[0].c_str(), &actions, &attributes, pointers(argv).data(),
                                 pointers(strings).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(out[1]), close(err[1]);
  out_ = out[0], err_ = err[0];
  if (failed != 0) throw std::runtime_error(argv[0] + ": " + std::strerror(failed));
}

Command::~Command() {
  if (!ended_) finish(0);
  kill(-pid_, SIGKILL);
  close_fd(out_), close_fd(err_);
}

std::vector<ProcessInfo> Command::group() const {
  std::vector<ProcessInfo> out = processes();
  std::erase_if(out, [this](const ProcessInfo& p) { return p.group != pid_; });
  return out;
}

bool Command::wait_for(const std::string& text, double seconds, int times) {
  const auto deadline = deadline_in(seconds);
  while (count(result_.out, text) < times) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    const bool ended = reap();
    const bool more = read_some(20);
    if (ended && !more && count(result_.out, text) < times) return false;
  }
  return true;
}

CommandResult Command::finish(double seconds) {
  const auto deadline = deadline_in(seconds);
  while (!reap()) {
    if (std::chrono::steady_clock::now() > deadline) {
      result_.timed_out = true;
      kill(-pid_, SIGKILL);
    }
    read_some(5);
  }
  // Whoever outlived the command may hold the pipes open: not for ever.
  const auto drained = deadline_in(2);
  while ((out_ >= 0 || err_ >= 0) && std::chrono::steady_clock::now() < drained) read_some(20);
  return result_;
}

std::chrono::steady_clock::time_point Command::deadline_in(double seconds) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

int Command::count(const std::string& in, const std::string& text) {
  int n = 0;
  for (size_t at = in.find(text); at != std::string::npos; at = in.find(text, at + text.size())) ++n;
  return n;
}

void Command::close_fd(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

bool Command::reap() {
  int status = 0;
  if (ended_ || waitpid(pid_, &status, WNOHANG) != pid_) return ended_;
  if (WIFEXITED(status)) result_.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result_.signal = WTERMSIG(status);
  return ended_ = true;
}

bool Command::read_some(int milliseconds) {
  pollfd entries[] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};
  if (poll(entries, 2, milliseconds) <= 0) return false;
  bool any = false;
  const auto take = [&](const pollfd& entry, int& fd, std::string& into) {
    if (fd < 0 || (entry.revents & (POLLIN | POLLHUP)) == 0) return;
    char buffer[65536];
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n > 0)
      into.append(buffer, static_cast<size_t>(n)), any = true;
    else
      close_fd(fd);
  };
  take(entries[0], out_, result_.out);
  take(entries[1], err_, result_.err);
  return any;
}

std::string Leftovers::after(const Command& command, double seconds) const {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  std::string left = now(command);
  while (!left.empty() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    left = now(command);
  }
  return left;
}

std::set<std::string> Leftovers::shared_files() {
  std::set<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) out.insert(entry.path());
  return out;
}

std::set<std::string> Leftovers::idle_segments() {
  std::set<std::string> out;
  std::ifstream table("/proc/sysvipc/shm");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream row(line);
    std::string key, id, mode, size, creator, last, attached;
    row >> key >> id >> mode >> size >> creator >> last >> attached;
    if (attached == "0") out.insert(id);
  }
  return out;
}

bool Leftovers::is_mapped(const std::string& file) {
  for (const ProcessInfo& process : processes()) {
    std::ifstream maps("/proc/" + std::to_string(process.pid) + "/maps");
    const std::string text{std::istreambuf_iterator<char>(maps), {}};
    if (text.find(file) != std::string::npos) return true;
  }
  return false;
}

std::string Leftovers::now(const Command& command) const {
  std::string out;
  for (const ProcessInfo& process : command.group()) {
    out += "process " + std::to_string(process.pid);
    for (const std::string& argument : process.arguments) out += " " + argument;
    out += "\n";
  }
  for (const std::string& file : shared_files()) {
    if (!files_.contains(file) && !is_mapped(file)) out += file + "\n";
  }
  for (const std::string& segment : idle_segments()) {
    if (!segments_.contains(segment)) out += "SysV segment " + segment + "\n";
  }
  return out;
}

}  // namespace tenon::test
