// One run of one op in the reference kernels. Computation is in double.
#pragma once

#include "tenon_sdk/cpu_kernels.hpp"

namespace tenon::kernels::reference {

struct Device {
  explicit Device(const tenon_kernels_config&) {}
};

struct Call : CpuCall<Device> {
  double number(std::string_view attr) const { return problem.number(attr); }
  int64_t integer(std::string_view attr) const { return problem.integer(attr); }
  // Stores a result, or adds it where the kernel accumulates.
  template <class T>
  void put(T& slot, double value) const {
    slot = static_cast<T>(problem.accumulate() ? static_cast<double>(slot) + value : value);
  }
};

using Entry = CpuOp<Call>;

std::span<const Entry> embedding_ops();
std::span<const Entry> norm_ops();
std::span<const Entry> linear_ops();
std::span<const Entry> routing_ops();
std::span<const Entry> grouped_linear_ops();
std::span<const Entry> attention_ops();
std::span<const Entry> elementwise_ops();
std::span<const Entry> dropout_ops();
std::span<const Entry> loss_ops();
std::span<const Entry> head_ops();
std::span<const Entry> shape_ops();
std::span<const Entry> shard_ops();

}  // namespace tenon::kernels::reference
