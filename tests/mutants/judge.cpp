#include "judge.h"

#include <fmt/format.h>

#include <cstring>

#include "base/hash.h"
#include "base/rng.h"
#include "plan/verify/verify.h"

namespace tenon::mutants {
namespace {

// The one place that asks the checks.
Status check(const Compiled& sound, const Reference& reference, const std::vector<Program>& changed) {
  const auto report = verify(changed, reference);
  return report.ok() ? check_alike(interfaces_of(changed), sound.classes) : Status(report.error());
}

uint64_t ways(const Sites& sites) {
  uint64_t out = 0;
  for (const Site& site : sites) out += site.ways;
  return out;
}

template <size_t n>
void note(char (&to)[n], const std::string& text) {
  std::strncpy(to, text.c_str(), n - 1);
}

}  // namespace

bool survives(Verdict verdict) {
  return verdict == Verdict::survivor || verdict == Verdict::crashed_checks ||
         verdict == Verdict::crashed_run;
}

namespace {

// The site of a number, and which of its ways it is.
std::string change(const Sites& sites, uint64_t number, std::vector<Program>& programs, size_t which) {
  size_t site = 0;
  while (number >= sites[site].ways) number -= sites[site++].ways;
  return sites[site].apply(programs, which, number);
}

// One kind of change of one part.
class Choosing {
 public:
  Choosing(Part part, size_t mutation, const std::vector<Program>& programs)
      : part_(part), mutation_(mutation), programs_(programs) {
    for (size_t p = 0; p < programs.size(); ++p) {
      sites_.push_back(mutations()[mutation].sites(programs, p));
      before_.push_back(before_.back() + ways(sites_.back()));
    }
  }

  // The first that change something, in the order that the key gives.
  void choose(uint64_t most, uint64_t key, std::vector<Program>& scratch, std::vector<Mutant>& out) const {
    if (before_.back() == 0) return;
    const Permutation order(before_.back(), key);
    for (uint64_t i = 0; i < before_.back() && most > 0; ++i) {
      const uint64_t chosen = order(i);
      size_t p = 0;
      while (before_[p + 1] <= chosen) ++p;
      if (change(sites_[p], chosen - before_[p], scratch, p).empty()) continue;
      scratch = programs_;
      out.push_back({part_, p, mutation_, chosen - before_[p]});
      --most;
    }
  }

 private:
  const Part part_;
  const size_t mutation_;
  const std::vector<Program>& programs_;
  std::vector<Sites> sites_;            // of each class
  std::vector<uint64_t> before_ = {0};  // each class: ways of those in front of it
};

}  // namespace

std::vector<Mutant> mutants_of(const Subject& subject, size_t most, uint64_t seed) {
  std::vector<Mutant> out;
  for (Part part : kParts) {
    const auto& programs = subject.compiled(part).programs;
    std::vector<Program> scratch = programs;
    for (size_t m = 0; m < mutations().size(); ++m) {
      const std::string key = fmt::format("{} {} {} {}", subject.name(), name_of(part), mutations()[m].field,
                                          mutations()[m].name);
      Choosing(part, m, programs).choose(most == 0 ? UINT64_MAX : most, key_from(seed, key), scratch, out);
    }
  }
  return out;
}

std::string apply(const Mutant& mutant, const Subject& subject, std::vector<Program>& programs) {
  const Sites sites =
      mutations()[mutant.mutation].sites(subject.compiled(mutant.part).programs, mutant.program);
  return change(sites, mutant.number, programs, mutant.program);
}

Judge::Judge(Subject& subject, volatile Stage& stage) : subject_(subject), stage_(stage) {
  for (Part part : kParts) {
    const Compiled& sound = subject.compiled(part);
    programs_[static_cast<size_t>(part)] = sound.programs;
    Reference& reference = without_needs_.emplace_back(*sound.reference);
    reference.workspaces.reset();
  }
}

const Sites& Judge::sites(const Mutant& mutant) {
  const auto [at, fresh] = sites_.try_emplace({mutant.part, mutant.program, mutant.mutation});
  if (fresh)
    at->second = mutations()[mutant.mutation].sites(subject_.compiled(mutant.part).programs, mutant.program);
  return at->second;
}

void Judge::judge(const Mutant& mutant, uint64_t seed, Judgement& out) {
  std::vector<Program>& programs = programs_[static_cast<size_t>(mutant.part)];
  const Compiled& sound = subject_.compiled(mutant.part);
  struct Restore {
    std::vector<Program>& programs;
    const std::vector<Program>& sound;
    ~Restore() { programs = sound; }
  } restore{programs, sound.programs};
  stage_ = Stage::changing;
  const std::string what = change(sites(mutant), mutant.number, programs, mutant.program);
  note(out.what, fmt::format("class {}, {}", mutant.program, what));
  stage_ = Stage::checking;
  try {
    const auto refused = [&](const Reference& reference, const char* by) {
      const Status status = check(sound, reference, programs);
      if (status.ok()) return false;
      out.verdict = Verdict::refused;
      note(out.code, by != nullptr ? by : status.error().code);
      return true;
    };
    if (refused(without_needs_[static_cast<size_t>(mutant.part)], nullptr) ||
        refused(*sound.reference, "needs"))
      return;
  } catch (const std::exception& thrown) {
    out.verdict = Verdict::crashed_checks;
    note(out.differs, thrown.what());
    return;
  }
  stage_ = Stage::running;
  out.verdict = Verdict::equal;
  for (Completion completion : kCompletions) {
    try {
      Record same(subject_.expected(mutant.part), subject_.exact());
      subject_.run(mutant.part, programs, completion, seed, same);
    } catch (const Refused& refused) {
      out.verdict = Verdict::refused;
      note(out.code, "plugin");
      note(out.differs, refused.what());
    } catch (const std::exception& wrong) {
      out.verdict = Verdict::survivor;
      note(out.differs, fmt::format("{} (transfers {})", wrong.what(), name_of(completion)));
    }
    if (out.verdict != Verdict::equal) break;
  }
}

}  // namespace tenon::mutants
