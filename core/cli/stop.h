// Ctrl-C and SIGTERM: a run finishes its step, saves and ends.
#pragma once

#include <atomic>

namespace tenon::cli {

// From now on SIGINT and SIGTERM ask to stop. `second_ends`: a second SIGINT ends the process at once.
void install_stop_handler(bool second_ends = true);
const std::atomic<bool>& stop_requested();

}  // namespace tenon::cli
