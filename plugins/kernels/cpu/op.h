// One run of one op in the CPU kernels, and how ops are cut into parts. Cuts depend on shapes alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "../reference/signature.h"
#include "loops.h"
#include "tenon/host.h"
#include "tenon_sdk/plugin.hpp"

namespace tenon::kernels::cpu {

// Elements of one part of a memory-bound op: long enough to hide the cost of handing it out.
constexpr int64_t kPartElements = 16384;

struct Call {
  const Problem& problem;
  const LoopTable& table;
  const tenon_parallel* pool;  // NULL: one thread
  void* const* pointers;       // inputs, outputs, then the workspace
  const double* state;         // made by Entry::state

  template <class T>
  const T* in(size_t i) const {
    return static_cast<const T*>(pointers[i]);
  }
  template <class T>
  T* out(size_t i) const {
    return static_cast<T*>(pointers[problem.inputs().size() + i]);
  }
  template <class T>
  T* workspace() const {
    return static_cast<T*>(pointers[problem.inputs().size() + problem.outputs().size()]);
  }
  template <class T>
  const Loops<T>& loops() const {
    return loops_of<T>(table);
  }
  int64_t size(std::string_view dim) const { return problem.size(dim); }

  // Threads that parallel() uses; results must not depend on it.
  int64_t threads() const { return pool == nullptr ? 1 : pool->num_threads(pool); }
  // body(part) for each part; must not throw.
  template <class Body>
  void parallel(int64_t parts, Body&& body) const {
    sdk::parallel_for(pool, parts, body);
  }
  // body(worker, item) for each item; who is free takes the next. At most `workers` run at once, each with a number
  // of its own: that of its scratch.
  template <class Body>
  void take(int64_t items, int64_t workers, Body&& body) const {
    std::atomic<int64_t> next{0};
    parallel(std::min({items, workers, threads()}), [&](int64_t worker) {
      for (int64_t item = next++; item < items; item = next++) body(worker, item);
    });
  }
  // body(begin, count) over [0, n) in chunks.
  template <class Body>
  void ranges(int64_t n, int64_t chunk, Body&& body) const {
    parallel((n + chunk - 1) / chunk, [&](int64_t part) {
      const int64_t begin = part * chunk;
      body(begin, std::min(chunk, n - begin));
    });
  }
  template <class Body>
  void elements(int64_t n, Body&& body) const {
    ranges(n, kPartElements, body);
  }
  template <class Body>
  void rows(int64_t n, int64_t width, Body&& body) const {
    ranges(n, std::max<int64_t>(1, kPartElements / std::max<int64_t>(1, width)), body);
  }
};

using Run = void (*)(const Call&);

struct Entry {
  const char* kind;
  Run f32, f64;
  Run i64 = nullptr, i32 = nullptr;
  int64_t (*workspace)(const Problem&) = nullptr;          // bytes
  std::vector<double> (*state)(const Problem&) = nullptr;  // made once, kept by the prepared kernel
};

inline int64_t real_bytes(const Problem& problem) { return dtype_bytes(problem.dtype()); }

std::span<const Entry> embedding_ops();
std::span<const Entry> norm_ops();
std::span<const Entry> linear_ops();
std::span<const Entry> attention_ops();
std::span<const Entry> elementwise_ops();
std::span<const Entry> loss_ops();
std::span<const Entry> shape_ops();

}  // namespace tenon::kernels::cpu
