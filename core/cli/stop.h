// Ctrl-C and SIGTERM: a run finishes its step, saves and ends.
#pragma once

#include <atomic>

namespace tenon::cli {

// From now on SIGINT and SIGTERM ask to stop. Whoever watches over the process decides when to wait no
// longer.
void install_stop_handler();
const std::atomic<bool>& stop_requested();

}  // namespace tenon::cli
