#include "base/parallel.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <system_error>

namespace tenon {
namespace {

// Waking a thread takes 5 to 40 us: about as long is worth waiting for the next job, which in a step follows
// sooner.
constexpr std::chrono::microseconds kAwake{40};
// Parts of one job; a run of more is cut into several jobs.
constexpr int64_t kMaxParts = int64_t{1} << 31;

// The one mutable thing that belongs to a thread: see the head of parallel.h.
ThreadPool*& current_pool() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  thread_local ThreadPool* pool = nullptr;
  return pool;
}

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

uint32_t job_of(uint64_t ticket) { return static_cast<uint32_t>(ticket >> 32); }
uint32_t left_of(uint64_t ticket) { return static_cast<uint32_t>(ticket); }

class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

void run_in_order(int64_t parts, ThreadPool::Part fn, void* arg) {
  for (int64_t part = 0; part < parts; ++part) fn(arg, part);
}

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(int threads, int64_t ranks) {
  if (threads < 1 || threads > kMostThreads) {
    return Error{"A010", "a pool of " + std::to_string(threads) + " threads", "",
                 "ask for 1 to " + std::to_string(kMostThreads), TENON_E_ARGUMENT};
  }
  const bool crowded = threads * ranks > int64_t{std::thread::hardware_concurrency()};
  std::unique_ptr<ThreadPool> pool(new ThreadPool(crowded));
  pool->threads_.reserve(static_cast<size_t>(threads) - 1);
  const BlockedSignals blocked;  // inherited by the threads that start below
  try {
    for (int i = 1; i < threads; ++i) pool->threads_.emplace_back([p = pool.get()] { p->serve(); });
  } catch (const std::system_error& e) {
    return Error{"E013",
                 "cannot start thread " + std::to_string(pool->num_threads()) + " of " +
                     std::to_string(threads) + ": " + e.what(),
                 "", "ask for fewer threads, or raise the limit on processes (ulimit -u)", TENON_E_MEMORY};
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run(int64_t parts, Part fn, void* arg) {
  if (parts <= 1 || threads_.empty() || busy_.exchange(true, std::memory_order_acquire)) {
    const Use nested(nullptr);
    return run_in_order(parts, fn, arg);
  }
  for (int64_t first = 0; first < parts; first += kMaxParts) {
    run_job(first, static_cast<uint32_t>(std::min(kMaxParts, parts - first)), fn, arg);
  }
  busy_.store(false, std::memory_order_release);
}

void ThreadPool::run_job(int64_t first, uint32_t parts, Part fn, void* arg) {
  first_.store(first, std::memory_order_relaxed);
  parts_.store(parts, std::memory_order_relaxed);
  fn_.store(fn, std::memory_order_relaxed);
  arg_.store(arg, std::memory_order_relaxed);
  step_.store(trail::current(), std::memory_order_relaxed);
  pending_.store(parts, std::memory_order_relaxed);
  const uint64_t job = job_of(ticket_.load(std::memory_order_relaxed)) + uint64_t{1};
  ticket_.store((job << 32) | parts, std::memory_order_release);
  wake_helpers(parts);
  {
    const Use nested(nullptr);  // a parallel_for inside a part runs in order
    finish(take_parts());
  }
  wait_until_done();
}

// Runs parts until none of the current job is left; returns how many.
//
// Why a helper never mixes two jobs: it reads the fields between loading a ticket and exchanging it. The
// exchange succeeds only on the very ticket, with parts left; then the part was free until now, so that
// job cannot have ended, so nobody can have begun to write the next one's fields. And a helper that
// holds unfinished parts keeps the job from ending, so all that it returns belong to one job.
uint32_t ThreadPool::take_parts() {
  uint32_t taken = 0;
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (left_of(ticket) != 0) {
    const int64_t part =
        first_.load(std::memory_order_relaxed) + parts_.load(std::memory_order_relaxed) - left_of(ticket);
    const Part fn = fn_.load(std::memory_order_relaxed);
    void* const arg = arg_.load(std::memory_order_relaxed);
    const trail::Step step = step_.load(std::memory_order_relaxed);
    if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      continue;
    }
    {
      const trail::Mark mark(step);
      fn(arg, part);
    }
    ++taken;
    ticket = ticket_.load(std::memory_order_acquire);
  }
  return taken;
}

void ThreadPool::finish(uint32_t parts) {
  if (parts == 0) return;
  if (pending_.fetch_sub(parts, std::memory_order_acq_rel) == parts) pending_.notify_one();
}

template <class Done>
bool ThreadPool::soon(Done done) const {
  constexpr int kLooks = 32;  // between two looks at the clock
  using Clock = std::chrono::steady_clock;
  for (const Clock::time_point end = Clock::now() + kAwake; !crowded_ && Clock::now() < end;) {
    for (int i = 0; i < kLooks; ++i) {
      if (done()) return true;
      pause_cpu();
    }
  }
  return done();
}

void ThreadPool::wait_until_done() const {
  if (soon([this] { return pending_.load(std::memory_order_acquire) == 0; })) return;
  for (;;) {
    const uint32_t left = pending_.load(std::memory_order_acquire);
    if (left == 0) return;
    pending_.wait(left, std::memory_order_acquire);
  }
}

// A helper that is not woken costs speed, never correctness: the caller takes what nobody takes.
void ThreadPool::wake_helpers(uint32_t parts) {
  epoch_.fetch_add(1, std::memory_order_release);
  if (parts > threads_.size()) return epoch_.notify_all();
  for (uint32_t i = 1; i < parts; ++i) epoch_.notify_one();
}

void ThreadPool::wait_for_new_job(uint32_t seen) const {
  if (soon([this, seen] { return epoch_.load(std::memory_order_acquire) != seen; })) return;
  epoch_.wait(seen, std::memory_order_acquire);
}

void ThreadPool::serve() {
  for (uint32_t seen = 0;;) {
    wait_for_new_job(seen);
    seen = epoch_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    finish(take_parts());
  }
}

ThreadPool::Use::Use(ThreadPool* pool) : before_(current_pool()) { current_pool() = pool; }
ThreadPool::Use::~Use() { current_pool() = before_; }

ThreadPool* ThreadPool::current() { return current_pool(); }

namespace {

void table_parallel_for(const tenon_parallel*, int64_t parts, ThreadPool::Part fn, void* arg) {
  if (fn == nullptr) return;
  ThreadPool* const pool = ThreadPool::current();
  if (pool == nullptr) return run_in_order(parts, fn, arg);
  pool->run(parts, fn, arg);
}

int32_t table_num_threads(const tenon_parallel*) {
  const ThreadPool* const pool = ThreadPool::current();
  return pool == nullptr ? 1 : pool->num_threads();
}

constexpr tenon_parallel kTable = {sizeof(tenon_parallel), 0, nullptr, table_parallel_for, table_num_threads};

}  // namespace

const tenon_parallel* parallel_table() { return &kTable; }

}  // namespace tenon
