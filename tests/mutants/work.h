// A program as one rank runs it: every instruction with its kernels, updates or transfer, and the addresses
// that these touch.
#pragma once

#include "kernels.h"
#include "optimizer.h"
#include "transfers.h"

namespace tenon::mutants {

// The pieces of one optimizer group in one bucket.
struct Update {
  size_t group = 0;
  bool measures = false;  // the optimizer's `stats`, not its `step`
  std::vector<tenon_update> pieces;
  std::vector<std::vector<void*>> slots;
  const char* scale = nullptr;
};

struct Work {
  uint32_t lane = 0;
  std::vector<InstrId> waits;
  uint32_t first_call = 0, num_calls = 0;      // of RankWork::calls
  uint32_t first_update = 0, num_updates = 0;  // of RankWork::updates
  std::optional<Post> post;
};

struct RankWork {
  struct Call {
    tenon_kernel* kernel = nullptr;
    uint32_t first_pointer = 0;
  };
  size_t lanes = 0;
  std::vector<Work> instrs;
  std::vector<Call> calls;
  std::vector<void*> pointers;
  std::vector<Update> updates;
};

// What all ranks share. All are borrowed.
struct Machine {
  const Mesh& mesh;
  Kernels& kernels;
  const Optimizer& optimizer;
};

// Fault where an instruction reaches beyond what there is; Refused where a plugin does not take it.
RankWork prepare(const Machine& machine, const Program& program, int64_t rank, RankMemory& memory,
                 Channels& channels);

}  // namespace tenon::mutants
