#include "run/rendezvous/memory_rendezvous.h"

#include "run/rendezvous/deadline.h"

namespace tenon::run {

Status MemoryRendezvous::set(const std::string& key, std::string_view value) {
  {
    const std::lock_guard lock(mutex_);
    TENON_CHECK(store_.set(key, value));
  }
  changed_.notify_all();
  return {};
}

Result<std::string> MemoryRendezvous::get(const std::string& key, int64_t timeout_ns) {
  const Deadline deadline(timeout_ns);
  std::unique_lock lock(mutex_);
  while (true) {
    if (aborted_) return job_aborted(*aborted_);
    if (const std::string* value = store_.find(key)) return *value;
    if (deadline.passed()) return key_timeout(key);
    if (deadline.never()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, deadline.at());
    }
  }
}

void MemoryRendezvous::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_) aborted_ = reason;
  }
  changed_.notify_all();
}

}  // namespace tenon::run
