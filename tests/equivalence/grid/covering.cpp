#include "covering.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/rng.h"

namespace tenon::test {
namespace {

struct Triple {
  std::array<size_t, 3> factors;  // ascending
  std::array<int, 3> values;
};

// Which triples are covered, a bit for each.
class Coverage {
 public:
  explicit Coverage(const std::vector<int>& sizes) : sizes_(sizes) {
    for (size_t a = 0; a < sizes.size(); ++a) {
      for (size_t b = a + 1; b < sizes.size(); ++b) {
        for (size_t c = b + 1; c < sizes.size(); ++c) {
          first_of_[{a, b, c}] = triples_.size();
          for (int x = 0; x < sizes[a]; ++x) {
            for (int y = 0; y < sizes[b]; ++y) {
              for (int z = 0; z < sizes[c]; ++z) triples_.push_back({{a, b, c}, {x, y, z}});
            }
          }
        }
      }
    }
    done_.resize(triples_.size());
  }

  size_t size() const { return triples_.size(); }
  const Triple& triple(size_t i) const { return triples_[i]; }
  bool done(size_t i) const { return done_[i]; }
  void mark(size_t i) { done_[i] = true; }
  void mark_all(const Choice& choice) {
    for (const auto& [factors, first] : first_of_) done_[first + offset(factors, choice)] = true;
  }
  // Triples not yet covered that `choice`, with what is set, makes of its factor `fresh`.
  int gain(const Choice& choice, size_t fresh) const {
    int out = 0;
    for (size_t a = 0; a < choice.size(); ++a) {
      for (size_t b = a + 1; b < choice.size(); ++b) {
        if (a == fresh || b == fresh || choice[a] == kOpen || choice[b] == kOpen) continue;
        std::array<size_t, 3> factors{a, b, fresh};
        std::sort(factors.begin(), factors.end());
        out += done_[first_of_.at(factors) + offset(factors, choice)] ? 0 : 1;
      }
    }
    return out;
  }

 private:
  size_t offset(const std::array<size_t, 3>& f, const Choice& choice) const {
    return static_cast<size_t>((choice[f[0]] * sizes_[f[1]] + choice[f[1]]) * sizes_[f[2]] + choice[f[2]]);
  }

  const std::vector<int>& sizes_;
  std::vector<Triple> triples_;
  std::map<std::array<size_t, 3>, size_t> first_of_;
  std::vector<bool> done_;
};

class Search {
 public:
  Search(const std::vector<int>& sizes, const Allowed& allowed, uint64_t seed)
      : sizes_(sizes), allowed_(allowed), coverage_(sizes), seed_(seed) {}

  CoveringArray run() {
    CoveringArray out;
    for (size_t i = 0; i < coverage_.size(); ++i) {
      if (coverage_.done(i)) continue;
      const Triple& wanted = coverage_.triple(i);
      Choice choice(sizes_.size(), kOpen);
      for (size_t k = 0; k < 3; ++k) choice[wanted.factors[k]] = wanted.values[k];
      if (allowed_(choice) && complete(choice)) {
        coverage_.mark_all(choice);
        out.cases.push_back(std::move(choice));
      } else {
        coverage_.mark(i);
        ++out.impossible;
      }
    }
    out.triples = static_cast<int64_t>(coverage_.size()) - out.impossible;
    return out;
  }

 private:
  // Sets the open factors, one after the other in a random order, each to the value that covers most that is
  // new; goes back where the constraints leave none. False when there is no such case.
  bool complete(Choice& choice) {
    std::vector<size_t> open;
    for (size_t f = 0; f < choice.size(); ++f) {
      if (choice[f] == kOpen) open.push_back(f);
    }
    for (size_t i = open.size(); i > 1; --i) std::swap(open[i - 1], open[random(i)]);
    return set_from(choice, open, 0);
  }

  bool set_from(Choice& choice, const std::vector<size_t>& open, size_t at) {
    if (at == open.size()) return true;
    const size_t factor = open[at];
    std::vector<std::array<int, 3>> ranked;  // gain, tie breaker, value
    for (int value = 0; value < sizes_[factor]; ++value) {
      choice[factor] = value;
      if (!allowed_(choice)) continue;
      ranked.push_back({coverage_.gain(choice, factor), static_cast<int>(random(1u << 30)), value});
    }
    std::sort(ranked.rbegin(), ranked.rend());
    for (const auto& [gain, tie, value] : ranked) {
      choice[factor] = value;
      if (set_from(choice, open, at + 1)) return true;
    }
    choice[factor] = kOpen;
    return false;
  }

  size_t random(size_t below) { return philox4x32({draws_++, 0, 0, 0}, seed_)[0] % below; }

  const std::vector<int>& sizes_;
  const Allowed& allowed_;
  Coverage coverage_;
  const uint64_t seed_;
  uint32_t draws_ = 0;
};

}  // namespace

CoveringArray cover_triples(const std::vector<int>& sizes, const Allowed& allowed, uint64_t seed) {
  return Search(sizes, allowed, seed).run();
}

}  // namespace tenon::test
