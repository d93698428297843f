// Trains a resolved recipe on virtual ranks inside the test and records what came out.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "host/resolve.h"
#include "run/session.h"

namespace tenon::test {

using Bytes = std::vector<char>;

struct StepRecord {
  StepResult result;
  std::map<std::string, Bytes> gradients;
};

// Whole tensors, put together from what the ranks hold.
struct RunRecord {
  std::vector<StepRecord> steps;
  std::vector<std::string> disagreements;  // what ranks that hold the same elements hold differently
  std::map<std::string, Bytes> tensors;    // parameters and optimizer state at the end
  std::map<std::string, Dtype> dtypes;
};

RegistryConfig test_registry();

Bytes copy_of(const Session& session, const TensorInfo& tensor);

// What a rank does after each step; returns false to stop.
using EachStep = std::function<bool(Session&, const StepResult&)>;

struct RunOptions {
  int ranks = 1;
  int threads = 1;
  int64_t steps = 1;
  std::string root = ".";
  EachStep each_step = {};                      // called on every rank
  std::function<Status(Session&)> before = {};  // after opening, on every rank
  std::function<Status(Session&)> after = {};
  std::function<void(PluginSet&)> change_plugins = {};  // lets a test stand between core and plugins
  std::shared_ptr<const Programs> programs = nullptr;   // compiled already
};

// Error of the first rank that failed, or the record.
Result<RunRecord> run_virtual(const Json& document, const RunOptions& options);

std::vector<double> as_doubles(const Bytes& bytes, Dtype dtype);

}  // namespace tenon::test
