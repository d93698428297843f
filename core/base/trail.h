// Where each thread of this process is in foreign code: a word a thread, in memory that a second process may
// share. When this one dies in a plugin, or a plugin ends it, the other still reads in which call: without a
// handler of signals, and with no work left to do for the one that died.
//
// The words belong to threads and the memory to the process, as thread_local and the environment do: there is
// one trail. A process that nobody watches, such as one that embeds Tenon, writes into memory of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tenon::trail {

// A call: (number of an owner << 16) | number of the call among the owner's. 0: none.
using Step = uint64_t;
constexpr Step step_of(uint32_t owner, uint16_t call) { return (Step{owner} << 16) | call; }

// Gives an owner of calls its number; the same again for what is known. `kind` is for whoever reads the
// trail. Of a long name the end is kept: a path ends with what tells files apart. 0 where nobody reads it, or
// there is no room for one more. [thread-safe]
uint32_t announce(std::string_view owner, uint32_t kind);

namespace detail {
using Word = std::atomic<Step>;
// Points at this thread's word; NULL before its first step.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
extern constinit thread_local Word* t_word __attribute__((tls_model("initial-exec")));
Word* claim_word();
inline Word& word() { return *(t_word != nullptr ? t_word : claim_word()); }
}  // namespace detail

// This thread's innermost call.
inline Step current() { return detail::word().load(std::memory_order_relaxed); }

// While it lives, this thread is in a call; then again where it was before.
class Mark {
 public:
  explicit Mark(Step step) : word_(detail::word()), before_(word_.load(std::memory_order_relaxed)) {
    word_.store(step, std::memory_order_relaxed);
  }
  ~Mark() { word_.store(before_, std::memory_order_relaxed); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

 private:
  detail::Word& word_;
  Step before_;
};

// This process is about to end with this code, and means it: 128 + the number of a signal, as shells say it,
// where it ends by one.
void tell_end(int code);
// What a user should do if this process dies from now on.
void advise(std::string_view text);

// A call that a process was in when it ended.
struct Found {
  std::string owner;
  uint32_t kind = 0;
  uint16_t call = 0;
  int threads = 0;  // that were in it
};

struct Layout;

// The memory: made by the process that watches, written by the one that is watched, which either is forked
// and calls watch(), or opens fd() again in a new program. The writer may be out of its mind: nothing that it
// left is trusted.
class Shared {
 public:
  static Result<Shared> create();        // error E011
  static Result<Shared> attach(int fd);  // error E011; takes the fd
  Shared(Shared&& other) noexcept;
  Shared& operator=(Shared&& other) noexcept;
  ~Shared();

  int fd() const { return fd_; }
  // From now on this process writes here, for the rest of its life: before its first thread and first call.
  void watch();

  // What it told; nothing: it did not end by its own will.
  std::optional<int> told_end() const;
  std::string advice() const;
  // Where its threads were, the rarest first: the call that ended a process is one, while others wait.
  std::vector<Found> found() const;

 private:
  Shared(int fd, Layout* layout) : fd_(fd), layout_(layout) {}
  int fd_ = -1;
  Layout* layout_ = nullptr;
  bool kept_ = false;  // the process writes here until it ends
};

}  // namespace tenon::trail
