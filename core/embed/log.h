// The log of an embedding program: lines from any thread, delivered on the threads that are inside a call.
// So the program's callback never runs on a thread that it does not know, or after its call returned.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace tenon::embed {

class LogQueue {
 public:
  using Function = void (*)(void* user, uint32_t level, const char* source, uint32_t line,
                            const char* message);

  // `function` may be NULL: then lines vanish.
  LogQueue(Function function, void* user) : function_(function), user_(user) {}

  // Keeps up to kMaxLines; what comes beyond is counted and reported. [thread-safe]
  void push(uint32_t level, std::string_view source, uint32_t line, std::string_view message);
  // Delivers what there is, unless another thread is at it (which then delivers it all). [thread-safe]
  void deliver();
  // Delivers on this thread until `done` is true; wake() makes it look again. [thread-safe]
  void deliver_until(const std::function<bool()>& done);
  void wake();

 private:
  static constexpr size_t kMaxLines = 4096;
  struct Line {
    uint32_t level;
    std::string source;
    uint32_t line;
    std::string message;
  };
  void deliver_locked(std::unique_lock<std::mutex>& lock);
  void call(const Line& line) const;

  const Function function_;
  void* const user_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Line> lines_;
  uint64_t lost_ = 0;
  bool delivering_ = false;
};

}  // namespace tenon::embed
