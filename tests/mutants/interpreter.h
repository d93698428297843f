// Runs the programs of all ranks in one thread, as Order (plan/program/program.h) promises it and no more:
// each lane starts its instructions in order, behind all compute that is listed before; on the compute lane
// one is complete before the next starts; and what one waits for, with all before it on that lane, is
// complete for all that is listed behind. Independent of core/run: it is what mutants of programs are judged
// by.
#pragma once

#include "work.h"

namespace tenon::mutants {

// When a transfer does its work, all of it at once: as soon as all members have started it, which each does
// as early as its lane allows; when a rank waits for it, and no sooner; or some time between.
enum class Completion : uint8_t { at_start, at_first_wait, at_random };
constexpr Completion kCompletions[] = {Completion::at_start, Completion::at_first_wait,
                                       Completion::at_random};
const char* name_of(Completion completion);

struct Scalars {
  int64_t step = 0;
  double lr = 0;
};

class Interpreter {
 public:
  // `programs`: of all classes; `memory`: of all ranks. All are borrowed. Fault as of prepare().
  Interpreter(const Machine& machine, const std::vector<Program>& programs, std::vector<RankMemory>& memory);

  // One step of all ranks. Fault where they get stuck. `seed` is for what is random.
  void run(const Scalars& scalars, Completion completion, uint64_t seed);

 private:
  const Machine& machine_;
  Channels channels_;
  std::vector<RankWork> ranks_;
};

// The program that a rank runs. Fault where there is none.
const Program& program_of(const std::vector<Program>& programs, int64_t rank);

}  // namespace tenon::mutants
