// Proofs about a program, for every rank, before step 0. Each check names the instruction it refuses.
#pragma once

#include "plan/program/program.h"

namespace tenon {

struct VerifyReport {
  std::vector<std::string> passed;  // one line per check: what was proved, over how many things
};

// All of the checks below, for the programs of all classes of ranks. Errors V002 to V007.
Result<VerifyReport> verify(const std::vector<Program>& programs);

// What a rank does on its communication lanes, in issue order.
struct Transfer {
  InstrId instr = 0;
  TransferKind kind = TransferKind::none;
  std::vector<int32_t> members;  // ascending
  int32_t root = -1;             // send, recv: the sender; broadcast: the root
  uint64_t bytes = 0;
  Dtype dtype = Dtype::f32;
  Reduction reduction = Reduction::sum;
  // send, recv within a microbatch: which value of which one travels. Both ends must mean the same.
  std::string value = {};
  int microbatch = -1;
};
// `rank` must be one that runs this program.
std::vector<Transfer> transfers_of(const Program& program, int64_t rank);
// Matching and deadlock freedom with everything serialised (V002, V003): runs all ranks' transfers by
// brute force, each rank strictly in its order; a transfer fires when all its members are at it.
Status check_transfers(const std::vector<std::vector<Transfer>>& per_rank);
// The same for all ranks by symmetry. Ranks of one class run one list, so the members of a group within a
// class arrive together: only transfers along the pipeline's axis remain, between one rank of each class.
Status check_symmetric(const std::vector<Program>& programs);
// The same, every rank run.
Status check_every_rank(const std::vector<Program>& programs);
// V004: any two accesses to common bytes, one of them a write, are ordered.
Status check_races(const Program& program);
// V005: every operand lies inside its buffer, every buffer inside its space, parameters, states and
// inputs apart from each other; and the arena's peak is what was planned.
Status check_memory(const Program& program);
// V006: a buffer of the arena is read only where this step has written it, for the microbatch that reads it;
// and (V004) nobody else writes between a value's first write and its last read. Needs V005.
Status check_uses(const Program& program);
// V007: each parameter is updated once, in place, from its own gradient, to which each microbatch contributed
// as many ops as the graph demands, each once, and which is summed over each axis on which it is a partial
// sum, once over each member, and over no other; a bucket's parts are all of it; what rests whole is whole
// again after the step, on every stage that holds it. The same of the loss and the token count; and the norm
// counts each gradient once. Needs V005.
Status check_completeness(const std::vector<Program>& programs);

}  // namespace tenon
