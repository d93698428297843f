// Proofs about a program, for every rank, before step 0. Each check names the instruction it refuses.
#pragma once

#include "plan/program.h"

namespace tenon {

struct VerifyReport {
  std::vector<std::string> passed;  // one line per check: what was proved, over how many things
};

// All of the checks below. Errors V002 to V007.
Result<VerifyReport> verify(const Program& program);

// What a rank does on its communication lanes, in issue order.
struct Transfer {
  InstrId instr = 0;
  std::string kind;
  std::vector<int32_t> members;
  uint64_t bytes = 0;
  Dtype dtype = Dtype::f32;
  Reduction reduction = Reduction::sum;
};
std::vector<Transfer> transfers_of(const Program& program, int64_t rank);
// Matching and deadlock freedom with everything serialised (V002, V003): runs all ranks' transfers by
// brute force, each rank strictly in its order; a transfer fires when all its members are at it.
Status check_transfers(const std::vector<std::vector<Transfer>>& per_rank);
// The same for all ranks by symmetry: they run one list, so each group's members arrive together.
Status check_symmetric(const Program& program);
// V004: any two accesses to common bytes, one of them a write, are ordered; and nobody else writes between
// a value's first write and its last read.
Status check_races(const Program& program);
// V005: every operand lies inside its buffer, every buffer inside its space, parameters, states and
// inputs apart from each other; and the arena's peak is what was planned.
Status check_memory(const Program& program);
// V006: a buffer of the arena is read only where this step has written it. Needs V005.
Status check_initialised(const Program& program);
// V007: each parameter is updated once, in place, from its own gradient, to which each microbatch
// contributed as many ops as the graph demands, each once, and which is summed over each axis that shards
// the samples, once over each member. The same of the loss, the token count and the norm's inputs. Needs
// V005.
Status check_completeness(const Program& program);

}  // namespace tenon
