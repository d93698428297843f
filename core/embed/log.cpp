#include "embed/log.h"

#include "tenon/host.h"

namespace tenon::embed {

void LogQueue::push(uint32_t level, std::string_view source, uint32_t line, std::string_view message) {
  if (function_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  if (lines_.size() >= kMaxLines) {
    ++lost_;
    return;
  }
  lines_.push_back({level, std::string(source), line, std::string(message)});
  changed_.notify_all();
}

// The callback belongs to a C program; what it throws must not tear a step apart.
void LogQueue::call(const Line& line) const {
  try {
    function_(user_, line.level, line.source.c_str(), line.line, line.message.c_str());
  } catch (...) {
  }
}

void LogQueue::deliver_locked(std::unique_lock<std::mutex>& lock) {
  if (delivering_) return;
  delivering_ = true;
  while (!lines_.empty() || lost_ > 0) {
    Line line{TENON_LOG_WARN, "log", 0, ""};
    if (lines_.empty()) {
      line.message = std::to_string(lost_) + " lines were lost: more than " + std::to_string(kMaxLines) +
                     " came between two calls";
      lost_ = 0;
    } else {
      line = std::move(lines_.front());
      lines_.pop_front();
    }
    lock.unlock();
    call(line);
    lock.lock();
  }
  delivering_ = false;
  changed_.notify_all();
}

void LogQueue::deliver() {
  std::unique_lock lock(mutex_);
  deliver_locked(lock);
}

void LogQueue::deliver_until(const std::function<bool()>& done) {
  std::unique_lock lock(mutex_);
  do {
    changed_.wait(lock, [&] { return done() || (!lines_.empty() && !delivering_); });
    deliver_locked(lock);
  } while (!done());
}

void LogQueue::wake() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

}  // namespace tenon::embed
