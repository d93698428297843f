// A pool of threads for one rank, and the parallel_for that plugins get (tenon/host.h).
//
// The functions of tenon_parallel take no rank, so the pool is that of the calling thread: the rank's
// thread names it with ThreadPool::Use. Without one, and inside a part, everything runs in order on the
// calling thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/trail.h"
#include "tenon/host.h"

namespace tenon {

class ThreadPool {
 public:
  using Part = void (*)(void* arg, int64_t part);
  static constexpr int kMostThreads = 4096;  // more than any machine has cores

  // `threads` counts the caller: 1 starts none. The new threads block every signal, so that the
  // handlers of the embedding program run on threads of its own. `ranks`: how many have such a pool on this
  // machine; where it has a core for each of their threads, threads that wait stay awake for a while. Errors:
  // E013 (no threads to be had), A010 (not 1 to kMostThreads).
  static Result<std::unique_ptr<ThreadPool>> create(int threads, int64_t ranks = 1);
  ~ThreadPool();  // no run() may be in progress
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls fn(arg, part) once for each part in [0, parts); returns when all are done. What parts wrote
  // is visible to the caller. Allocates nothing. fn must not throw. A call while another is in progress
  // (from inside a part, or from a second thread) runs its parts in order on its own thread.
  void run(int64_t parts, Part fn, void* arg);

  // While it lives, `pool` is the calling thread's; the one before comes back afterwards. Must end on
  // the thread that it began on. NULL: none.
  class Use {
   public:
    explicit Use(ThreadPool* pool);
    explicit Use(ThreadPool& pool) : Use(&pool) {}
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    ThreadPool* before_;
  };

  // The calling thread's pool, or NULL.
  static ThreadPool* current();

 private:
  explicit ThreadPool(bool crowded) : crowded_(crowded) {}
  // Whether `done` holds within the time for which a thread stays awake.
  template <class Done>
  bool soon(Done done) const;
  void serve();
  void run_job(int64_t first, uint32_t parts, Part fn, void* arg);
  uint32_t take_parts();
  void wake_helpers(uint32_t parts);
  void wait_for_new_job(uint32_t seen) const;
  void finish(uint32_t parts);
  void wait_until_done() const;

  const bool crowded_;  // no core to stay awake on

  // The job. Written by the caller before the ticket and read by helpers after it; atomic because a
  // helper that is late may look while the next job is being written (it then fails to take a part).
  std::atomic<int64_t> first_{0};
  std::atomic<uint32_t> parts_{0};
  std::atomic<Part> fn_{nullptr};
  std::atomic<void*> arg_{nullptr};
  std::atomic<trail::Step> step_{0};  // in which call the caller is: so are its parts, wherever they run

  alignas(64) std::atomic<uint64_t> ticket_{0};   // (job << 32) | parts not yet taken
  alignas(64) std::atomic<uint32_t> pending_{0};  // parts not yet finished; the caller's futex
  alignas(64) std::atomic<uint32_t> epoch_{0};    // changes with each job; the helpers' futex
  std::atomic<bool> busy_{false};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

// The host's tenon_parallel: its functions use the calling thread's pool. Constant, lives for ever.
const tenon_parallel* parallel_table();

}  // namespace tenon
