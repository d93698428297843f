#include "plan/verify/print.h"

#include <bit>

#include "base/hash.h"

namespace tenon {
namespace {

constexpr uint64_t kFirst = (uint64_t{1} << 61) - 1, kSecond = (uint64_t{1} << 61) - 31;  // primes

}  // namespace

Print operator+(const Print& x, const Print& y) { return {(x.a + y.a) % kFirst, (x.b + y.b) % kSecond}; }

PrintHash& PrintHash::add(uint64_t word) {
  bytes_.append(reinterpret_cast<const char*>(&word), sizeof word);
  return *this;
}

PrintHash& PrintHash::add(std::string_view text) {
  add(text.size());
  bytes_ += text;
  return *this;
}

PrintHash& PrintHash::add(const Attr& attr) {
  add(attr.index());
  const auto* whole = std::get_if<int64_t>(&attr);
  return add(whole != nullptr ? static_cast<uint64_t>(*whole)
                              : std::bit_cast<uint64_t>(std::get<double>(attr)));
}

Print PrintHash::print() const {
  const auto halves = xxh3_128(std::as_bytes(std::span(bytes_)));
  return {halves[0] % kFirst, halves[1] % kSecond};
}

}  // namespace tenon
