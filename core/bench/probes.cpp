#include "bench/probes.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>
#include <thread>

#include "bench/bench.h"

namespace tenon::bench {
namespace {

constexpr size_t kHuge = size_t{2} << 20;
constexpr int64_t kUnit = 16;  // floats: of the loops

// Keeps the calling thread on one of the cores it may use, while it lives: number `index`
// of those, if there are so many.
class Pinned {
 public:
  explicit Pinned(int index) {
    if (sched_getaffinity(0, sizeof before_, &before_) != 0) return;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (!CPU_ISSET(core, &before_) || index-- > 0) continue;
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(core, &one);
      done_ = sched_setaffinity(0, sizeof one, &one) == 0;
      return;
    }
  }
  ~Pinned() {
    if (done_) sched_setaffinity(0, sizeof before_, &before_);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  cpu_set_t before_{};
  bool done_ = false;
};

// Spins, but lets others have the core when it takes long.
void await(const std::atomic<uint64_t>& ball, uint64_t value) {
  for (int spins = 0; ball.load(std::memory_order_acquire) != value; ++spins) {
    if (spins > 4096) std::this_thread::yield();
  }
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double Rates::size_of_step(size_t i) { return std::exp2(14 + 0.5 * static_cast<double>(i)); }

double Rates::seconds(double flops_done, double bytes_moved) const {
  return std::max(flops > 0 ? flops_done / flops : 0, bytes > 0 ? bytes_moved / bytes : 0);
}

double Rates::seconds_again(double flops_done, double bytes_moved) const {
  Rates out{flops, bytes, {}};
  for (size_t i = again.size(); i > 0 && (i == again.size() || size_of_step(i) > bytes_moved / 2); --i)
    out.bytes = std::max(out.bytes, again[i - 1]);  // who moves less is never slower
  return out.seconds(flops_done, bytes_moved);
}

Probe::Block::Block(size_t floats)
    : data_(static_cast<float*>(std::aligned_alloc(kHuge, floats * sizeof(float)))) {
  if (data_ == nullptr) throw std::bad_alloc();
  madvise(data_, floats * sizeof(float), MADV_HUGEPAGE);
  std::fill_n(data_, floats, 1.0f);
}

Probe::Block::~Block() { std::free(data_); }

std::string isa_of(const OptionValues& options) {
  const tenon_option* isa = options.find("isa");
  return isa != nullptr && isa->kind == TENON_STRING ? isa->s : "auto";
}

Probe::Probe(ThreadPool& pool, const PeakLoops& peak)
    : pool_(pool),
      peak_(peak),
      part_(int64_t{8} << 20),
      x_(static_cast<size_t>(part_ * pool.num_threads())),
      y_(static_cast<size_t>(part_ * pool.num_threads())) {}

void Probe::sample() {
  // The system may wake two threads on one core, and takes some milliseconds to move one away.
  constexpr int kPasses = 6;
  for (int pass = 0; pass < kPasses; ++pass)
    rates_.flops = std::max(rates_.flops, multiply_adds_per_second());
  rates_.bytes = std::max(rates_.bytes, adds_per_second(part_ * pool_.num_threads(), 1));
}

void Probe::sample_again() {
  constexpr int64_t kLeast = int64_t{1} << 20;  // floats of a thread, for which the others may be woken
  const int64_t threads = pool_.num_threads();
  for (size_t i = 0;; ++i) {
    const auto count = static_cast<int64_t>(Rates::size_of_step(i) / (2 * sizeof(float)));
    if (count > part_ * threads) break;
    if (rates_.again.size() == i) rates_.again.push_back(0);
    adds_per_second(count, 1);  // into the caches
    rates_.again[i] = std::max(rates_.again[i], adds_per_second(count, 1 + threads * kLeast / count));
  }
}

double Probe::adds_per_second(int64_t count, int64_t repeats) {
  struct Job {
    const PeakLoops& loops;
    float* a;
    const float* b;
    int64_t count, repeats;  // of a thread
  } job{peak_, x_.data(), y_.data(), count / pool_.num_threads() / kUnit * kUnit, repeats};
  const double start = seconds_now();
  pool_.run(
      pool_.num_threads(),
      [](void* arg, int64_t part) {
        const Job& j = *static_cast<Job*>(arg);
        for (int64_t i = 0; i < j.repeats; ++i)
          j.loops.add(j.a + part * j.count, j.b + part * j.count, j.count);
      },
      &job);
  const auto moved = static_cast<double>(3 * sizeof(float) * job.count * pool_.num_threads() * repeats);
  return moved / (seconds_now() - start);
}

double Probe::multiply_adds_per_second() {
  struct Job {
    double (*run)();
    double operations;  // of the first thread; all do the same
  } job{peak_.multiply_adds, 0};
  const double start = seconds_now();
  pool_.run(
      pool_.num_threads(),
      [](void* arg, int64_t part) {
        Job& j = *static_cast<Job*>(arg);
        const double done = j.run();
        if (part == 0) j.operations = done;
      },
      &job);
  return job.operations * static_cast<double>(pool_.num_threads()) / (seconds_now() - start);
}

Rates Probe::rates() const { return rates_; }

void Probe::clear() { rates_ = {}; }

double core_latency() {
  if (std::thread::hardware_concurrency() < 2) return 0;
  constexpr uint64_t kTurns = 500;
  constexpr int kGames = 100;
  alignas(64) std::atomic<uint64_t> ball{0};  // even: mine; odd: the other's; counts on
  const auto play = [&ball](uint64_t me, uint64_t first) {
    for (uint64_t turn = first; turn < first + kTurns; ++turn) {
      await(ball, 2 * turn + me);
      ball.store(2 * turn + me + 1, std::memory_order_release);
    }
  };
  std::thread other([&] {
    const Pinned second(1);
    for (uint64_t game = 0; game < kGames; ++game) play(1, game * kTurns);
  });
  const Pinned first(0);  // after the other thread was made, which would begin with this one's cores
  double least = 1;
  for (uint64_t game = 0; game < kGames; ++game) {
    const double start = seconds_now();
    play(0, game * kTurns);
    least = std::min(least, (seconds_now() - start) / (2.0 * kTurns));
  }
  other.join();
  return least * 1e9;
}

}  // namespace tenon::bench
