#include "record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace tenon::mutants {
namespace {

constexpr double kFloor = 1e-6;  // what is smaller is compared as if it were as large

}  // namespace

bool same_bits(std::span<const double> a, std::span<const double> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

double distance(std::span<const double> a, std::span<const double> b, double floor) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double most = 0, size = floor;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) return std::numeric_limits<double>::infinity();
    most = std::max(most, std::abs(a[i] - b[i]));
    size = std::max(size, std::abs(a[i]));
  }
  return most / size;
}

void Record::add(const std::string& name, const std::vector<double>& values) {
  if (expected_ == nullptr) {
    entries_.push_back({name, values});
    return;
  }
  if (next_ == expected_->entries_.size() || expected_->entries_[next_].name != name)
    throw Different(name + " is not there in the other");
  const Entry& other = expected_->entries_[next_++];
  if (same_bits(other.values, values)) return;
  const double far = distance(other.values, values, kFloor);
  if (bits_ || far > kTolerance) throw Different(fmt::format("{}: by {:.1e}", name, far));
}

void Record::end() const {
  if (expected_ != nullptr && next_ != expected_->entries_.size())
    throw Different(expected_->entries_[next_].name + " is missing");
}

}  // namespace tenon::mutants
