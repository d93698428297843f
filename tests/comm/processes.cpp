#include "processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "run/rendezvous/auth.h"
#include "run/rendezvous/tcp_client.h"
#include "run/rendezvous/tcp_server.h"
#include "scenarios.h"

namespace tenon::test {

namespace {

using Clock = std::chrono::steady_clock;

struct Child {
  pid_t pid = -1;
  int out = -1;
  ChildResult result;
};

// UCX patches libc's mmap and munmap as soon as it is loaded, which ThreadSanitizer does not survive. What it
// watches them for (registered memory of RDMA devices) does not matter here.
std::vector<char*> child_environment() {
  std::vector<char*> out;
  for (char** variable = environ; *variable != nullptr; ++variable) out.push_back(*variable);
#ifdef __SANITIZE_THREAD__
  static char no_hooks[] = "UCX_MEM_EVENTS=n";
  out.push_back(no_hooks);
#endif
  out.push_back(nullptr);
  return out;
}

Child spawn(const std::vector<std::string>& arguments) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDERR_FILENO);
  std::vector<char*> argv;
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  Child child;
  const int rc = posix_spawn(&child.pid, argv[0], &actions, nullptr, argv.data(), child_environment().data());
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
  if (rc != 0) throw std::runtime_error(std::string("posix_spawn: ") + std::strerror(rc));
  child.out = pipe_ends[0];
  return child;
}

// Reads all pipes to their ends, or until the deadline. True if all have ended.
bool read_all(std::vector<Child>& children, Clock::time_point deadline) {
  while (true) {
    std::vector<pollfd> entries;
    for (const Child& c : children) entries.push_back({c.out, POLLIN, 0});  // closed ones are -1
    bool open = false;
    for (const pollfd& e : entries) open = open || e.fd >= 0;
    if (!open) return true;
    if (Clock::now() >= deadline) return false;
    poll(entries.data(), entries.size(), 100);
    for (size_t i = 0; i < children.size(); ++i) {
      if ((entries[i].revents & (POLLIN | POLLHUP)) == 0) continue;
      char buffer[4096];
      const ssize_t n = read(children[i].out, buffer, sizeof buffer);
      if (n > 0) {
        children[i].result.output.append(buffer, static_cast<size_t>(n));
      } else {
        close(children[i].out);
        children[i].out = -1;
      }
    }
  }
}

void reap(Child& child) {
  int status = 0;
  waitpid(child.pid, &status, 0);
  if (WIFEXITED(status)) child.result.exit_status = WEXITSTATUS(status);
  if (WIFSIGNALED(status))
    child.result.output += "ended by signal " + std::to_string(WTERMSIG(status)) + "\n";
  if (child.out >= 0) close(child.out);
}

}  // namespace

std::vector<ChildResult> run_ranks(const std::string& scenario, int world, const std::string& tls,
                                   bool reachable, double seconds) {
  run::ServerOptions options;
  options.secret = run::make_secret().value();
  options.job = scenario;
  options.world = static_cast<uint32_t>(world);
  const auto server = run::TcpServer::start(options).value();
  std::vector<Child> children;
  for (int rank = 0; rank < world; ++rank) {
    children.push_back(spawn({"/proc/self/exe", "--rank", scenario, std::to_string(rank),
                              std::to_string(world), std::to_string(server->port()),
                              run::to_hex(options.secret), tls, reachable ? "reachable" : "private"}));
  }
  const auto limit = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  if (!read_all(children, Clock::now() + limit)) {
    for (Child& c : children) {
      if (c.out < 0) continue;
      c.result.output += "still running after " + std::to_string(seconds) + " s\n";
      kill(c.pid, SIGKILL);
    }
  }
  std::vector<ChildResult> results;
  for (Child& c : children) {
    reap(c);
    results.push_back(c.result);
  }
  return results;
}

int child_main(int argc, char** argv, const std::string& plugin_file) {
  if (argc != 9 || std::strcmp(argv[1], "--rank") != 0) return -1;
  try {
    const std::string scenario = argv[2];
    run::ClientOptions options;
    options.rank = static_cast<uint32_t>(std::stoul(argv[3]));
    options.port = static_cast<uint16_t>(std::stoul(argv[5]));
    options.secret = run::secret_from_hex(argv[6]).value();
    options.job = scenario;
    const auto rendezvous = run::TcpClient::connect(options);
    if (!rendezvous.ok()) throw std::runtime_error(rendezvous.error().text());
    const RankContext context{load_comm(plugin_file), **rendezvous, std::stoi(argv[3]),
                              std::stoi(argv[4]),     argv[7],      std::strcmp(argv[8], "reachable") == 0};
    scenarios().at(scenario)(context);
    return 0;
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
}

}  // namespace tenon::test
