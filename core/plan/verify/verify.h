// Proofs about a program, for every rank, before step 0. Each check names the instruction it refuses.
#pragma once

#include <memory>

#include "plan/verify/interface.h"

namespace tenon {

struct VerifyReport {
  std::vector<std::string> passed;  // one line per check: what was proved, over how many things
};

// All of the checks below, class by class, so that none needs the programs of all at once. Errors V002 to
// V008. The reference is borrowed.
class Verifier {
 public:
  explicit Verifier(const Reference& reference);
  ~Verifier();

  // What the proof of the whole needs of each class, in order. Memory need not be planned.
  Status look(const Program& program);
  // What concerns one class alone, against the reference. Needs check_form(), and that it was looked at.
  Status prove(const Program& program);
  // What concerns all classes together, when each was looked at.
  Status prove_together() const;
  // What was proved, of which.
  VerifyReport report() const;
  // The interfaces of what was looked at.
  const std::vector<Interface>& classes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The same for the programs of all classes of ranks, all of them proved.
Result<VerifyReport> verify(const std::vector<Program>& programs, const Reference& reference);

// What the other checks take for granted: the mesh has ranks, every operand and buffer lies where it says,
// the parts of each bucket are all of it (V005, V007).
Status check_form(const Program& program);
// And that they are those of one run: one for each place on the pipeline's axis.
Status check_form(const std::vector<Program>& programs);
// V002, V003: each transfer is one that its axes, its peer and its operands allow, and waits for earlier
// ones.
Status check_own_transfers(const Program& program);

// Matching and deadlock freedom (V002, V003), by brute force: all ranks go through their lists, each waiting
// where its list says. A transfer is complete when all its members have started it, and those before it on
// its lane are.
Status check_transfers(const std::vector<std::vector<Transfer>>& per_rank);
// The same for all ranks by symmetry. Ranks of one class run one list, so the members of a group within a
// class are at its transfers together, and these complete as they start: only transfers along the pipeline's
// axis remain, between one rank of each class.
Status check_symmetric(const std::vector<Interface>& classes);
// With check_own_transfers().
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
// V007: what the program of a class leaves behind (parameters, optimizer state, loss, token count, norm,
// scale, logits) is what the reference says: each byte range is followed from what is there before the step
// to what is read behind it, as the fingerprint of a value and the form in which it stands for it. What
// another class hands over is what the interfaces say, as that class is held to. Needs V002 to V006. See
// docs/explanation/step-program.md for what this proves and what it trusts.
class Meaning {
 public:
  explicit Meaning(const Reference& reference);
  ~Meaning();
  Status check(const Program& program);

 private:
  struct Shared;
  const Reference& reference_;
  std::unique_ptr<Shared> shared_;  // by all classes: made with the first
};
Status check_meaning(const std::vector<Program>& programs, const Reference& reference);

}  // namespace tenon
