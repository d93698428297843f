#include "cli/probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace tenon::cli {
namespace {

constexpr unsigned kSeconds = 30;  // for a constructor: init is to be fast, and this comes before it

std::string answer_of(const PluginListing& listing) {
  Json out{{"version", listing.version}, {"doc", listing.doc}, {"options", listing.options}};
  if (const auto& error = listing.error) {
    out["error"] = {
        {"code", error->code}, {"cause", error->cause}, {"place", error->place}, {"fix", error->fix}};
  }
  return printable(out);
}

PluginListing listing_of(const PluginFile& file, const Json& answer) {
  PluginListing out;
  out.id = file.id;
  out.path = file.path;
  out.version = answer.at("version");
  out.doc = answer.at("doc");
  out.options = answer.at("options");
  if (const auto it = answer.find("error"); it != answer.end())
    out.error = Error{it->at("code"), it->at("cause"), it->at("place"), it->at("fix"), TENON_E_IO};
  return out;
}

[[noreturn]] void answer(const PluginFile& file, int fd) {
  dup2(STDERR_FILENO, STDOUT_FILENO);  // what a constructor prints is no part of a listing
  alarm(kSeconds);
  const std::string text = answer_of(look_at(file));
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = write(fd, text.data() + at, text.size() - at);
    if (n < 0 && errno != EINTR) break;
    if (n > 0) at += static_cast<size_t>(n);
  }
  _exit(0);
}

// A child, and the end of a pipe that it writes to.
class Child {
 public:
  Child(pid_t pid, int fd) : pid_(pid), fd_(fd) { fcntl(fd_, F_SETFL, O_NONBLOCK); }
  ~Child() { close(fd_); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // All that it wrote until its end, which comes in time. Nobody waits for the end of the pipe: a process
  // that it left behind may hold that open for ever.
  std::string answer() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(kSeconds + 1);
    while (!reap()) {
      read_some();
      if (std::chrono::steady_clock::now() < deadline) continue;
      late_ = true;
      kill(pid_, SIGKILL);  // it does not hear its alarm
    }
    read_some();
    return text_;
  }
  bool ended_well() const { return status_ == 0; }
  // How it ended without an answer.
  std::string end() const {
    if (!WIFSIGNALED(status_))
      return fmt::format("a process that opens it ends with code {}", WEXITSTATUS(status_));
    const int signal = WTERMSIG(status_);
    if (late_ || signal == SIGALRM) return fmt::format("opening it takes more than {} seconds", kSeconds);
    return fmt::format("a process that opens it is killed by signal {} ({})", signal, strsignal(signal));
  }

 private:
  bool reap() { return waitpid(pid_, &status_, WNOHANG) == pid_; }

  void read_some() {
    constexpr int kPatience = 20;  // milliseconds
    pollfd entry{at_end_ ? -1 : fd_, POLLIN, 0};
    poll(&entry, 1, at_end_ ? 1 : kPatience);
    char buffer[4096];
    ssize_t n = 0;
    while ((n = read(fd_, buffer, sizeof buffer)) > 0) text_.append(buffer, static_cast<size_t>(n));
    at_end_ = n == 0;
  }

  pid_t pid_;
  int fd_;
  int status_ = 0;
  bool at_end_ = false;
  bool late_ = false;
  std::string text_;
};

PluginListing refused(const PluginFile& file, const std::string& cause) {
  PluginListing out;
  out.id = file.id;
  out.path = file.path;
  out.error = Error{"A003", cause, file.path, "", TENON_E_IO};
  return out;
}

}  // namespace

PluginListing probe(const PluginFile& file) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return refused(file, fmt::format("pipe: {}", std::strerror(errno)));
  std::cout.flush();  // or what is buffered would be the child's, too
  const pid_t child = fork();
  if (child == 0) {
    close(fds[0]);
    answer(file, fds[1]);
  }
  close(fds[1]);
  if (child < 0) {
    close(fds[0]);
    return refused(file, fmt::format("fork: {}", std::strerror(errno)));
  }
  Child probed(child, fds[0]);
  const Json answer = Json::parse(probed.answer(), nullptr, false);
  const bool answered = probed.ended_well() && answer.is_object();
  return answered ? listing_of(file, answer) : refused(file, probed.end());
}

}  // namespace tenon::cli
