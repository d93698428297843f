// Proofs about a program, for every rank, before step 0. Each check names the instruction it refuses.
#pragma once

#include "plan/program/program.h"
#include "plan/verify/reference.h"

namespace tenon {

struct VerifyReport {
  std::vector<std::string> passed;  // one line per check: what was proved, over how many things
};

// All of the checks below, for the programs of all classes of ranks. Errors V002 to V008.
Result<VerifyReport> verify(const std::vector<Program>& programs, const Reference& reference);

// What the other checks take for granted: the mesh has ranks, every operand and buffer lies where it says,
// the parts of each bucket are all of it (V005, V007).
Status check_form(const std::vector<Program>& programs);

// V005: parameters, which outlive a step, lie where the programs that a run begins with put them: in every
// class of every kind of program in the same place, in the same parts.
Status check_alike(const std::vector<Program>& programs, const std::vector<Program>& first);

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
  uint32_t lane = 0;
  std::vector<size_t> needs = {};  // earlier ones of this list that must be complete before it starts
};
// `rank` must be one that runs this program.
std::vector<Transfer> transfers_of(const Program& program, int64_t rank);
// Those along the pipeline's axis, of any rank of the program's class; members and root are classes.
std::vector<Transfer> transfers_between_classes(const Program& program);
// Matching and deadlock freedom (V002, V003), by brute force: all ranks go through their lists, each waiting
// where its list says. A transfer is complete when all its members have started it, and those before it on
// its lane are.
Status check_transfers(const std::vector<std::vector<Transfer>>& per_rank);
// The same for all ranks by symmetry. Ranks of one class run one list, so the members of a group within a
// class are at its transfers together, and these complete as they start: only transfers along the pipeline's
// axis remain, between one rank of each class.
Status check_symmetric(const std::vector<Program>& programs);
// The same, every rank run.
Status check_every_rank(const std::vector<Program>& programs);
// V004: any two accesses to common bytes, one of them a write, are ordered.
Status check_races(const Program& program);
// V008: nowhere is more in flight on a lane than the program's window.
Status check_windows(const Program& program);
// V005: parameters, states and inputs apart from each other; and the arena's peak is what was planned. Needs
// check_form().
Status check_memory(const Program& program);
// V006: a buffer of the arena is read only where this step has written it, for the microbatch that reads it;
// and (V004) nobody else writes between a value's first write and its last read. Needs V005.
Status check_uses(const Program& program);
// V007: what the programs of all classes leave behind (parameters, optimizer state, loss, token count, norm,
// scale, logits) is what the reference says: each byte range is followed from what is there before the step
// to what is read behind it, as the fingerprint of a value and the form in which it stands for it. Needs V002
// to V006. See docs/explanation/step-program.md for what this proves and what it trusts.
Status check_meaning(const std::vector<Program>& programs, const Reference& reference);

}  // namespace tenon
