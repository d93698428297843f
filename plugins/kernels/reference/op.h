// One run of one op in the reference kernels.
#pragma once

#include <cstdint>
#include <span>

#include "signature.h"
#include "tenon_sdk/plugin.hpp"

namespace tenon::kernels::reference {

struct Call {
  const Problem& problem;
  void* const* pointers;  // inputs, outputs, then the workspace

  template <class T>
  const T* in(size_t i) const {
    return static_cast<const T*>(pointers[i]);
  }
  template <class T>
  T* out(size_t i) const {
    return static_cast<T*>(pointers[problem.inputs().size() + i]);
  }
  double* workspace() const {
    return static_cast<double*>(pointers[problem.inputs().size() + problem.outputs().size()]);
  }
  int64_t size(std::string_view dim) const { return problem.size(dim); }
  double number(std::string_view attr) const { return problem.number(attr); }
  int64_t integer(std::string_view attr) const { return problem.integer(attr); }
  // Stores a result, or adds it where the kernel accumulates.
  template <class T>
  void put(T& slot, double value) const {
    slot = static_cast<T>(problem.accumulate() ? static_cast<double>(slot) + value : value);
  }
};

using Run = void (*)(const Call&);
using Workspace = int64_t (*)(const Problem&);  // doubles that a call needs

// An op kind, once per storage dtype of its operands. Computation is in double.
struct Entry {
  const char* kind;
  Run f32, f64;
  Run i64 = nullptr, i32 = nullptr;
  Workspace workspace = nullptr;
};

std::span<const Entry> embedding_ops();
std::span<const Entry> norm_ops();
std::span<const Entry> linear_ops();
std::span<const Entry> routing_ops();
std::span<const Entry> grouped_linear_ops();
std::span<const Entry> attention_ops();
std::span<const Entry> elementwise_ops();
std::span<const Entry> dropout_ops();
std::span<const Entry> loss_ops();
std::span<const Entry> shape_ops();
std::span<const Entry> shard_ops();

}  // namespace tenon::kernels::reference
