// What became of many mutants, by part, field and change; and which survivors are known.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "judge.h"

namespace tenon::mutants {

class Report {
 public:
  void add(const std::string& recipe, const Mutant& mutant, const Judgement& judgement);

  struct Counts {
    size_t refused = 0, equal = 0, survivors = 0, crashed_checks = 0;
    std::map<std::string, size_t> codes;
    size_t all() const { return refused + equal + survivors; }
  };
  // One line for each part, field and change, and a sum.
  std::string table() const;
  // Of each line the first few, each with recipe, change and what differs.
  std::string survivors(size_t most) const;
  // All that brought the checks down.
  std::string crashes() const;
  bool surviving() const { return !survivors_.empty(); }

 private:
  std::map<std::string, Counts> lines_;
  std::map<std::string, std::vector<std::string>> survivors_;
  std::vector<std::string> crashes_;
};

}  // namespace tenon::mutants
