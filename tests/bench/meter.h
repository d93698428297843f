// Kernels and an optimizer seen through a meter: the tables of a PluginSet are replaced by ones that pass
// every call on and record how long it took.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "run/plugin_set.h"

namespace tenon::bench {

// One kernel, or the update, and the time of each of its calls.
struct Record {
  std::string name;  // "linear 1024 x 3072 x 768"
  double flops = 0;  // of one call
  double bytes = 0;  // read and written by one call, each operand once
  std::vector<double> seconds;
};

// At most one at a time: a table's open() has no argument that could say which meter is meant.
class Meter {
 public:
  // Replaces the tables in `plugins`, which must outlive the meter and any session made of it.
  explicit Meter(PluginSet& plugins);
  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  void clear();
  // By name.
  const std::map<std::string, Record>& records() const { return records_; }
  Record& record(const std::string& name) { return records_[name]; }
  const tenon_kernels& kernels() const { return *kernels_; }
  const tenon_optimizer& optimizer() const { return *optimizer_; }

 private:
  const tenon_kernels* kernels_;
  const tenon_optimizer* optimizer_;
  tenon_kernels metered_kernels_;
  tenon_optimizer metered_optimizer_;
  std::map<std::string, Record> records_;
};

}  // namespace tenon::bench
