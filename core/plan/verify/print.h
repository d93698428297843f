// Fingerprints: what bytes mean, as two numbers. A sum's is the sum of its addends'; that of any other op is
// a hash of the op, its attributes and its operands'. So two ways to compute the same sums of the same things
// agree, and two different things agree by chance only: the hash is taken for random, and then two values
// that differ have equal fingerprints with a chance below 2^-121.
#pragma once

#include <compare>
#include <string>
#include <string_view>

#include "graph/types.h"

namespace tenon {

// Numbers modulo two primes.
struct Print {
  uint64_t a = 0, b = 0;
  auto operator<=>(const Print&) const = default;
};
Print operator+(const Print& x, const Print& y);

// Takes words one behind the other; strings with their length, so that no two lists meet.
class PrintHash {
 public:
  explicit PrintHash(std::string_view what) { add(what); }
  PrintHash& add(uint64_t word);
  PrintHash& add(std::string_view text);
  PrintHash& add(const Print& print) { return add(print.a).add(print.b); }
  PrintHash& add(const Attr& attr);
  Print print() const;

 private:
  std::string bytes_;
};

}  // namespace tenon
