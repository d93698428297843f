#include "bench/bare.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

namespace tenon::bench {
namespace {

constexpr int64_t kMostRanks = 256;
constexpr int64_t kLanes = 16;
typedef float Vector __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));

// targets[k][i] = sum of sources[r][i], for whole vectors; the rest by elements.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)  // whose runtime comes after the choice of a clone
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void
sum(const std::vector<float*>& sources, const std::vector<float*>& targets, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Vector total = *reinterpret_cast<const Vector*>(sources[0] + i);
    for (size_t r = 1; r < sources.size(); ++r) total += *reinterpret_cast<const Vector*>(sources[r] + i);
    for (float* target : targets) *reinterpret_cast<Vector*>(target + i) = total;
  }
  for (; i < count; ++i) {
    float total = 0;
    for (const float* source : sources) total += source[i];
    for (float* target : targets) target[i] = total;
  }
}

Error system_error(const char* what) {
  return Error{"E011", fmt::format("{}: {}", what, std::strerror(errno)), "shared memory of the benchmark",
               "", TENON_E_IO};
}

}  // namespace

bool Barrier::wait(int64_t world, bool spins) {
  const uint32_t round = round_.load();
  if (arrived_.fetch_add(1) + 1 == static_cast<uint32_t>(world)) {
    arrived_.store(0);
    round_.fetch_add(1);
    if (!spins) syscall(SYS_futex, &round_, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
    return true;
  }
  constexpr int kSpins = 1 << 16;  // then others may have the core
  for (int turn = 0; round_.load() == round; ++turn) {
    if (spins && turn > kSpins) std::this_thread::yield();
    if (left_.load() != 0) return round_.load() != round;
    const timespec look_again{0, 100'000'000};
    if (!spins) syscall(SYS_futex, &round_, FUTEX_WAIT, round, &look_again, nullptr, 0);
  }
  return true;
}

struct SharedWorld::Head {
  Barrier barrier;
  alignas(64) double values[kMostRanks];
};

// Rank 0 makes a nameless file; the others open it through its process.
Result<std::unique_ptr<SharedWorld>> SharedWorld::open(RankId id, run::Rendezvous& rendezvous,
                                                       uint64_t bytes) {
  if (id.world > kMostRanks)
    return Error{"R005", fmt::format("{} ranks", id.world), "-n", fmt::format("at most {}", kMostRanks),
                 TENON_E_ARGUMENT};
  std::unique_ptr<SharedWorld> out(new SharedWorld(id, aligned(bytes)));
  out->spins_ = id.world <= static_cast<int64_t>(std::thread::hardware_concurrency());
  constexpr int64_t kPatience = 60'000'000'000;
  int fd = -1;
  if (id.rank == 0) {
    fd = memfd_create("tenon-bench", MFD_CLOEXEC);
    if (fd < 0) return system_error("memfd_create");
    TENON_CHECK(rendezvous.set("bench/shared", fmt::format("/proc/{}/fd/{}", getpid(), fd)));
  } else {
    TENON_TRY(const std::string path, rendezvous.get("bench/shared", kPatience));
    fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) return system_error(path.c_str());
  }
  Status mapped = out->map(fd);
  if (mapped.ok())
    mapped = run::barrier(rendezvous, "bench/mapped", static_cast<int>(id.rank), static_cast<int>(id.world),
                          kPatience);
  close(fd);
  TENON_CHECK(std::move(mapped));
  return out;
}

SharedWorld::~SharedWorld() {
  if (base_ == nullptr) return;
  reinterpret_cast<Head*>(base_)->barrier.leave();
  munmap(base_, size_);
}

Status SharedWorld::map(int fd) {
  size_ = aligned(sizeof(Head)) + static_cast<uint64_t>(id_.world) * 2 * bytes_;
  if (id_.rank == 0 && ftruncate(fd, static_cast<off_t>(size_)) != 0) return system_error("ftruncate");
  // A file that rank 0 has not made large enough yet is mapped as well: nobody touches it before the barrier.
  void* base = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return system_error("mmap");
  base_ = static_cast<char*>(base);
  return {};
}

float* SharedWorld::source(int64_t rank) const {
  return reinterpret_cast<float*>(base_ + aligned(sizeof(Head)) + static_cast<uint64_t>(rank) * 2 * bytes_);
}

float* SharedWorld::destination(int64_t rank) const { return source(rank) + bytes_ / sizeof(float); }

Status SharedWorld::barrier() {
  if (reinterpret_cast<Head*>(base_)->barrier.wait(id_.world, spins_)) return {};
  return Error{"W011", "another rank gave up", fmt::format("rank {}", id_.rank), "", TENON_E_ABORTED};
}

Result<double> SharedWorld::max(double mine) {
  double* values = reinterpret_cast<Head*>(base_)->values;
  values[id_.rank] = mine;
  TENON_CHECK(barrier());
  const double out = *std::max_element(values, values + id_.world);
  TENON_CHECK(barrier());
  return out;
}

void SharedWorld::reduce(int64_t first, int64_t count, bool to_all) const {
  std::vector<float*> sources, targets;
  for (int64_t r = 0; r < id_.world; ++r) sources.push_back(source(r) + first);
  sum(sources, to_all ? sources : std::vector<float*>{destination(id_.rank)}, count);
}

Status SharedWorld::collective(TransferKind kind, int64_t count) {
  const int64_t part = count / id_.world;
  const auto copy = [](float* to, const float* from, int64_t n) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
  };
  TENON_CHECK(barrier());
  if (kind == TransferKind::all_reduce || kind == TransferKind::reduce_scatter)
    reduce(id_.rank * part, part, kind == TransferKind::all_reduce);
  for (int64_t r = 0; r < id_.world; ++r) {
    if (kind == TransferKind::all_gather) copy(destination(id_.rank) + r * part, source(r), part);
    if (kind == TransferKind::all_to_all)
      copy(destination(id_.rank) + r * part, source(r) + id_.rank * part, part);
  }
  if (kind == TransferKind::broadcast && id_.rank != 0) copy(source(id_.rank), source(0), count);
  return barrier();
}

}  // namespace tenon::bench
