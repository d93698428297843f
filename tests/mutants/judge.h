// What becomes of a mutant: refused by the checks, shown to come to the same, or neither.
#pragma once

#include "mutation.h"
#include "subject.h"

namespace tenon::mutants {

struct Mutant {
  Part part = Part::train;
  size_t program = 0;   // of the part's classes
  size_t mutation = 0;  // of mutations()
  uint64_t number = 0;  // of that mutation's ways, over all its sites
};

enum class Verdict : uint8_t {
  none,     // not judged
  refused,  // by verify, or by a plugin before a step begins
  equal,
  survivor,
  crashed_checks,  // verify did not come back
  crashed_run,     // accepted, and the run did not
};
bool survives(Verdict verdict);

// Fits in memory that processes share.
struct Judgement {
  Verdict verdict = Verdict::none;
  char code[8] = {};       // refused: the error's; "needs": for what kernels need alone; or "plugin"
  char what[128] = {};     // was changed
  char differs[128] = {};  // survivors: the first result that does
};

// The mutants of a recipe: `most` of each kind of change in each part (0: all), chosen by the seed; each
// changes something.
std::vector<Mutant> mutants_of(const Subject& subject, size_t most, uint64_t seed);

// Makes a mutant of the programs of its part, and says what is changed.
std::string apply(const Mutant& mutant, const Subject& subject, std::vector<Program>& programs);

// The stage that a mutant is in, told before each.
enum class Stage : uint8_t { idle, changing, checking, running };

class Judge {
 public:
  // `stage` is written as a mutant goes from one to the next, and the judgement as far as it is known: a
  // crash leaves both.
  Judge(Subject& subject, volatile Stage& stage);
  void judge(const Mutant& mutant, uint64_t seed, Judgement& out);

 private:
  const Sites& sites(const Mutant& mutant);
  Subject& subject_;
  volatile Stage& stage_;
  std::array<std::vector<Program>, std::size(kParts)> programs_;  // of each part; sound between two mutants
  // Of each part, as if the kernels plugin had been asked for whatever kernel there is, and needed no memory:
  // fingerprints are to refuse without its help.
  std::vector<Reference> without_needs_;
  std::map<std::tuple<Part, size_t, size_t>, Sites> sites_;
};

}  // namespace tenon::mutants
