// Ranks of one host around one block of shared memory: what they meet and measure with, and collectives as
// bare loops over it, to judge plugins by.
#pragma once

#include <atomic>

#include "graph/transfer.h"
#include "run/device.h"
#include "run/rendezvous/rendezvous.h"

namespace tenon::bench {

// In shared memory, of zeros. Spins while ranks have cores of their own, and else sleeps at once.
class Barrier {
 public:
  // False: somebody left, and will not come.
  bool wait(int64_t world, bool spins);
  void leave() { left_.store(1); }

 private:
  alignas(64) std::atomic<uint32_t> left_;
  alignas(64) std::atomic<uint32_t> arrived_;
  alignas(64) std::atomic<uint32_t> round_;
};

class SharedWorld {
 public:
  // `bytes` of source and of destination for each rank. Collective. Error E011, E010.
  static Result<std::unique_ptr<SharedWorld>> open(RankId id, run::Rendezvous& rendezvous, uint64_t bytes);
  ~SharedWorld();  // ends what others still wait for
  SharedWorld(const SharedWorld&) = delete;
  SharedWorld& operator=(const SharedWorld&) = delete;

  // Collective. Error W011 when a rank has left.
  Status barrier();
  Result<double> max(double mine);  // of all ranks' values, to all
  // `count` elements of the larger side, divisible by the world. From source to destination, as tenon/comm.h
  // has it; all_reduce in place in the source, broadcast from rank 0.
  Status collective(TransferKind kind, int64_t count);

  RankId id() const { return id_; }
  float* source(int64_t rank) const;
  float* destination(int64_t rank) const;

 private:
  struct Head;
  SharedWorld(RankId id, uint64_t bytes) : id_(id), bytes_(bytes) {}
  Status map(int fd);
  void reduce(int64_t first, int64_t count, bool to_all) const;

  RankId id_;
  uint64_t bytes_;
  bool spins_ = false;
  char* base_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace tenon::bench
