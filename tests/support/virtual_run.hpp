// Trains a resolved recipe on virtual ranks inside the test and records what came out.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "host/resolve.h"
#include "run/rendezvous/memory_rendezvous.h"
#include "run/session.h"

namespace tenon::test {

using Bytes = std::vector<char>;

struct StepRecord {
  StepResult result;
  std::map<std::string, Bytes> gradients;
};

struct RunRecord {
  std::vector<StepRecord> steps;
  std::map<std::string, Bytes> tensors;  // parameters and optimizer state at the end
  std::map<std::string, Dtype> dtypes;
};

inline RegistryConfig test_registry() {
  RegistryConfig config;
  config.directories = {TENON_PLUGIN_DIR};
  config.default_directories = false;
  return config;
}

inline Bytes copy_of(const Session& session, const TensorInfo& tensor) {
  const char* at = session.data(tensor);
  return Bytes(at, at + tensor.operand.bytes());
}

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
};

// Error of the first rank that failed, or the record of rank 0.
inline Result<RunRecord> run_virtual(const Json& document, const RunOptions& options) {
  PluginRegistry registry(test_registry());
  TENON_TRY(const Recipe recipe, read_recipe(document));
  TENON_TRY(const PluginSet plugins, load_plugins(registry, recipe));
  run::MemoryRendezvous rendezvous;
  RunRecord record;
  std::vector<Status> outcomes(static_cast<size_t>(options.ranks));
  const auto rank_main = [&](int rank) -> Status {
    SessionOptions session_options;
    session_options.id = {rank, options.ranks};
    session_options.rendezvous = options.ranks > 1 ? &rendezvous : nullptr;
    session_options.root = options.root;
    session_options.threads = options.threads;
    session_options.timeout_ns = 60'000'000'000;
    TENON_TRY(const auto session, Session::open(recipe, plugins, session_options));
    if (options.before) TENON_CHECK(options.before(*session));
    while (session->steps_done() < options.steps) {
      TENON_TRY(const StepResult result, session->step());
      if (rank == 0) {
        StepRecord step{result, {}};
        for (const TensorInfo& param : session->params()) {
          const char* at = session->gradient(param.name);
          step.gradients[param.name] = Bytes(at, at + param.operand.bytes());
        }
        record.steps.push_back(std::move(step));
      }
      if (options.each_step && !options.each_step(*session, result)) break;
    }
    if (options.after) TENON_CHECK(options.after(*session));
    if (rank == 0) {
      for (const auto* list : {&session->params(), &session->states()}) {
        for (const TensorInfo& tensor : *list) {
          record.tensors[tensor.name] = copy_of(*session, tensor);
          record.dtypes[tensor.name] = tensor.operand.dtype;
        }
      }
    }
    return {};
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < options.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      outcomes[static_cast<size_t>(rank)] = rank_main(rank);
      if (!outcomes[static_cast<size_t>(rank)].ok())
        rendezvous.abort("rank " + std::to_string(rank) + " failed");
    });
  }
  outcomes[0] = rank_main(0);
  if (!outcomes[0].ok()) rendezvous.abort("rank 0 failed");
  for (std::thread& thread : threads) thread.join();
  for (Status& outcome : outcomes) {
    if (!outcome.ok() && outcome.error().code != "W025") return std::move(outcome).error();
  }
  for (Status& outcome : outcomes) {
    if (!outcome.ok()) return std::move(outcome).error();
  }
  return record;
}

inline std::vector<double> as_doubles(const Bytes& bytes, Dtype dtype) {
  std::vector<double> out;
  const size_t n = bytes.size() / static_cast<size_t>(size_of(dtype));
  for (size_t i = 0; i < n; ++i) {
    if (dtype == Dtype::f64) {
      double v;
      std::memcpy(&v, bytes.data() + i * 8, 8);
      out.push_back(v);
    } else {
      float v;
      std::memcpy(&v, bytes.data() + i * 4, 4);
      out.push_back(v);
    }
  }
  return out;
}

}  // namespace tenon::test
