#include "cli/death.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <cstring>

#include "host/plugins/guard.h"

namespace tenon::cli {
namespace {

// "in kernels/mine, enqueue"; several where threads were in several calls, the rarest first.
std::string place_of(const trail::Shared& left) {
  std::string out;
  for (const trail::Found& found : left.found()) {
    const std::string call = text_of_call(found);
    if (call.empty()) continue;
    out += (out.empty() ? "in " : "; or in ") + call;
    if (found.threads > 1) out += fmt::format(" ({} threads)", found.threads);
  }
  return out;
}

}  // namespace

bool ended_as_told(int status, const trail::Shared& left) {
  const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return left.told_end() == code;
}

std::optional<Error> death_of(const std::string& who, int status, const trail::Shared& left) {
  if (ended_as_told(status, left)) return std::nullopt;
  std::string how;
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    how = fmt::format("was killed by signal {} ({})", signal, strsignal(signal));
  } else if (const auto told = left.told_end()) {
    how = fmt::format("ended with code {}, and had said {}", WEXITSTATUS(status), *told);
  } else {
    how = fmt::format("ended with code {} and said nothing", WEXITSTATUS(status));
  }
  return Error{"W002", who + " " + how, place_of(left), left.advice(), TENON_E_UNKNOWN};
}

}  // namespace tenon::cli
