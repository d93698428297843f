#include "report.h"

#include <fmt/format.h>

namespace tenon::mutants {

void Report::add(const std::string& recipe, const Mutant& mutant, const Judgement& judgement) {
  const Mutation& mutation = mutations()[mutant.mutation];
  const std::string line = fmt::format("{} {}: {}", name_of(mutant.part), mutation.field, mutation.name);
  Counts& counts = lines_[line];
  switch (judgement.verdict) {
    case Verdict::refused:
      ++counts.refused;
      ++counts.codes[judgement.code];
      return;
    case Verdict::equal: ++counts.equal; return;
    case Verdict::crashed_checks:
      ++counts.crashed_checks;
      crashes_.push_back(fmt::format("{}: {}, {}: {}", line, recipe, judgement.what, judgement.differs));
      break;
    default: break;
  }
  ++counts.survivors;
  const char* how = judgement.verdict == Verdict::crashed_checks ? "the checks end: "
                    : judgement.verdict == Verdict::crashed_run  ? "the run ends: "
                                                                 : "";
  survivors_[line].push_back(fmt::format("{}, {}: {}{}", recipe, judgement.what, how, judgement.differs));
}

std::string Report::table() const {
  std::string out = fmt::format("{:<72} {:>7} {:>7} {:>7} {:>9}  codes\n", "change", "mutants", "refused",
                                "equal", "survivors");
  Counts sum;
  const auto row = [&out](const std::string& name, const Counts& counts) {
    std::string codes;
    for (const auto& [code, n] : counts.codes) codes += fmt::format(" {} {}", code, n);
    if (counts.crashed_checks > 0) codes += fmt::format(" (checks ended by {})", counts.crashed_checks);
    out += fmt::format("{:<72} {:>7} {:>7} {:>7} {:>9} {}\n", name, counts.all(), counts.refused,
                       counts.equal, counts.survivors, codes);
  };
  for (const auto& [name, counts] : lines_) {
    row(name, counts);
    sum.refused += counts.refused;
    sum.equal += counts.equal;
    sum.survivors += counts.survivors;
    sum.crashed_checks += counts.crashed_checks;
    for (const auto& [code, n] : counts.codes) sum.codes[code] += n;
  }
  row("all", sum);
  return out;
}

std::string Report::survivors(size_t most) const {
  std::string out;
  for (const auto& [line, all] : survivors_) {
    out += fmt::format("{} ({} survive)\n", line, all.size());
    for (size_t i = 0; i < all.size() && i < most; ++i) out += "    " + all[i] + "\n";
  }
  return out;
}

std::string Report::crashes() const {
  std::string out;
  for (const std::string& crash : crashes_) out += "    " + crash + "\n";
  return out.empty() ? out : "These brought the checks down:\n" + out;
}

}  // namespace tenon::mutants
