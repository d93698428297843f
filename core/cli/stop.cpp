#include "cli/stop.h"

#include <csignal>
#include <thread>

namespace tenon::cli {
namespace {

// Signals are the process's own.
std::atomic<bool> g_stop{false};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

}  // namespace

// Signals are taken by a thread of their own and blocked in all others: generated matrix code may use the
// stack pointer freely, and a signal frame would then be written into somebody's memory.
void install_stop_handler() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] {
    for (int signal = 0; sigwait(&signals, &signal) == 0;) g_stop = true;
  }).detach();
}

const std::atomic<bool>& stop_requested() { return g_stop; }

}  // namespace tenon::cli
