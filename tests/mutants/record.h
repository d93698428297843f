// What comes out of a run, and the comparison of one run with another.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace tenon::mutants {

// A run came to another result than the one that it is compared with.
struct Different : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Record {
 public:
  Record() = default;
  // Of a run that must come to the same: bit by bit, or within kTolerance of the largest of each tensor.
  Record(const Record& expected, bool bits) : expected_(&expected), bits_(bits) {}

  // Different where that is not what the other run had here.
  void add(const std::string& name, const std::vector<double>& values);
  // Different where the other run had more.
  void end() const;

  struct Entry {
    std::string name;
    std::vector<double> values;
  };
  std::span<const Entry> entries() const { return entries_; }

  static constexpr double kTolerance = 1e-10;

 private:
  const Record* expected_ = nullptr;
  bool bits_ = false;
  size_t next_ = 0;
  std::vector<Entry> entries_;  // where nothing is expected
};

bool same_bits(std::span<const double> a, std::span<const double> b);
// Largest difference by the largest magnitude of `a`, or by `floor` where that is more; NaN counts as
// infinite.
double distance(std::span<const double> a, std::span<const double> b, double floor);

}  // namespace tenon::mutants
