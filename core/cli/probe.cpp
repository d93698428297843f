#include "cli/probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

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
  alarm(kSeconds);
  const std::string text = answer_of(look_at(file));
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = write(fd, text.data() + at, text.size() - at);
    if (n < 0 && errno != EINTR) break;
    if (n > 0) at += static_cast<size_t>(n);
  }
  _exit(0);
}

std::string read_all(int fd) {
  std::string out;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) != 0;) {
    if (n > 0) out.append(buffer, static_cast<size_t>(n));
    if (n < 0 && errno != EINTR) break;
  }
  return out;
}

std::string end_of(int status) {
  if (!WIFSIGNALED(status))
    return fmt::format("a process that opens it ends with code {}", WEXITSTATUS(status));
  if (WTERMSIG(status) == SIGALRM) return fmt::format("opening it takes more than {} seconds", kSeconds);
  return fmt::format("a process that opens it is killed by signal {} ({})", WTERMSIG(status),
                     strsignal(WTERMSIG(status)));
}

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
  const std::string text = child > 0 ? read_all(fds[0]) : "";
  close(fds[0]);
  if (child < 0) return refused(file, fmt::format("fork: {}", std::strerror(errno)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const Json answer = Json::parse(text, nullptr, false);
  return status == 0 && answer.is_object() ? listing_of(file, answer) : refused(file, end_of(status));
}

}  // namespace tenon::cli
