#include "host/plugins/process_state.h"

namespace tenon {

ProcessStateGuard::ProcessStateGuard() {
  for (int number = 1; number <= kNumSignals; ++number) {
    Saved& saved = signals_[static_cast<size_t>(number)];
    saved.known = sigaction(number, nullptr, &saved.action) == 0;
  }
  fegetenv(&float_environment_);
}

ProcessStateGuard::~ProcessStateGuard() {
  fesetenv(&float_environment_);
  for (int number = 1; number <= kNumSignals; ++number) {
    const Saved& saved = signals_[static_cast<size_t>(number)];
    if (saved.known) sigaction(number, &saved.action, nullptr);
  }
}

}  // namespace tenon
