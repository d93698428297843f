#include "host/recipe/process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
extern "C" {  // glibc 2.36 forgot to
#include <sys/pidfd.h>
}

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace tenon {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    close();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~Descriptor() { close(); }
  int get() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

struct Pipe {
  Descriptor read, write;
};

Error not_started(const std::string& what, int code) {
  return Error{"R017", "cannot start '" + what + "': " + std::strerror(code), "", "", TENON_E_IO};
}

Result<Pipe> make_pipe(const std::string& what) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return not_started(what, errno);
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

// What the child gets: /dev/null, the two pipes, nothing else; default signals.
class SpawnSetup {
 public:
  SpawnSetup(int output, int messages) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, messages, STDERR_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1);
    posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  int spawn(pid_t& pid, const std::vector<std::string>& argv) const {
    std::vector<char*> pointers;
    pointers.reserve(argv.size() + 1);
    for (const std::string& argument : argv) pointers.push_back(const_cast<char*>(argument.c_str()));
    pointers.push_back(nullptr);
    char* environment[] = {nullptr};
    return posix_spawn(&pid, pointers[0], &actions_, &attributes_, pointers.data(), environment);
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

// Appends what the pipe holds; closes it at its end.
void drain(Descriptor& pipe, std::string& out, size_t keep, bool& overflow) {
  std::array<char, 65536> buffer;
  const ssize_t n = read(pipe.get(), buffer.data(), buffer.size());
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n <= 0) return pipe.close();
  const size_t room = keep - std::min(keep, out.size());
  if (static_cast<size_t>(n) > room) overflow = true;
  out.append(buffer.data(), std::min(static_cast<size_t>(n), room));
}

int remaining_ms(std::chrono::steady_clock::time_point deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  return static_cast<int>(std::max<int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(left).count()));
}

// Reads both pipes until their ends, or says which limit was hit.
ChildEnd::Cause collect(Pipe& output, Pipe& messages, const ChildLimits& limits, ChildEnd& end) {
  const auto deadline = std::chrono::steady_clock::now() + limits.wall;
  while (output.read.get() >= 0 || messages.read.get() >= 0) {
    std::array<pollfd, 2> fds{{{output.read.get(), POLLIN, 0}, {messages.read.get(), POLLIN, 0}}};
    const int ready = poll(fds.data(), fds.size(), remaining_ms(deadline));
    if (ready < 0 && errno != EINTR) return ChildEnd::Cause::unknown;
    if (ready == 0 && remaining_ms(deadline) == 0) return ChildEnd::Cause::too_slow;
    bool overflow = false, ignored = false;
    if (ready > 0 && fds[0].revents != 0) drain(output.read, end.output, limits.output, overflow);
    if (ready > 0 && fds[1].revents != 0) drain(messages.read, end.messages, limits.messages, ignored);
    if (overflow) return ChildEnd::Cause::too_much;
  }
  return ChildEnd::Cause::exited;
}

// Waits for the child's end; a child that somebody else reaped has an unknown end.
void reap(int process, ChildEnd& end, bool killed) {
  siginfo_t info{};
  int result = 0;
  do {
    result = waitid(P_PIDFD, static_cast<id_t>(process), &info, WEXITED);
  } while (result != 0 && errno == EINTR);
  if (killed) return;
  if (result != 0) {
    end.cause = ChildEnd::Cause::unknown;
    return;
  }
  end.cause = info.si_code == CLD_EXITED ? ChildEnd::Cause::exited : ChildEnd::Cause::signalled;
  end.status = info.si_status;
}

}  // namespace

Result<ChildEnd> run_child(const std::vector<std::string>& argv, const ChildLimits& limits) {
  TENON_TRY(Pipe output, make_pipe(argv[0]));
  TENON_TRY(Pipe messages, make_pipe(argv[0]));
  pid_t pid = -1;
  const int failure = SpawnSetup(output.write.get(), messages.write.get()).spawn(pid, argv);
  if (failure != 0) return not_started(argv[0], failure);
  const Descriptor process(pidfd_open(pid, 0));
  output.write.close();
  messages.write.close();
  ChildEnd end;
  end.cause = collect(output, messages, limits, end);
  const bool killed = end.cause != ChildEnd::Cause::exited;
  if (process.get() < 0) {  // reaped by the host already, or a kernel without pidfd
    if (killed) kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    if (!killed) end.cause = ChildEnd::Cause::unknown;
    return end;
  }
  if (killed) pidfd_send_signal(process.get(), SIGKILL, nullptr, 0);
  // The outputs are closed: what is left of the child's life is its exit.
  pollfd ended{process.get(), POLLIN, 0};
  if (!killed && poll(&ended, 1, static_cast<int>(limits.wall.count())) == 0) {
    pidfd_send_signal(process.get(), SIGKILL, nullptr, 0);
  }
  reap(process.get(), end, killed);
  return end;
}

}  // namespace tenon
