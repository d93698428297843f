// One run of one op in the CPU kernels, and how ops are cut into parts. Cuts depend on shapes alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "loops.h"
#include "tenon/host.h"
#include "tenon_sdk/cpu_kernels.hpp"

namespace tenon::kernels::cpu {

// Elements of one part of a memory-bound op: long enough to hide the cost of handing it out.
constexpr int64_t kPartElements = 16384;

// Threads that work on one op at once.
constexpr int64_t kMaxWorkers = 64;

struct Device {
  explicit Device(const tenon_kernels_config& config);
  const LoopTable& table;
  const tenon_parallel* pool;  // NULL: one thread
};

struct Call : CpuCall<Device> {
  template <class T>
  const Loops<T>& loops() const {
    return loops_of<T>(device.table);
  }
  // Of a kind that elementwise_loops.h has.
  template <class T>
  const ElementLoop<T>& element_loop(std::string_view kind) const {
    const ElementLoop<T>* at = loops<T>().elementwise;
    while (kind != at->kind) ++at;
    return *at;
  }
  // body(worker, item) for each item; must not throw. At most `workers` run at once, each with a number of
  // its own: that of its scratch. Each begins with its own run of items, so that neighbours stay in one
  // core's cache from op to op, and then helps the others. `work`: multiply-adds beside passing over the
  // operands.
  template <class Body>
  void take(int64_t items, int64_t workers, Body&& body, double work = 0) const {
    workers = small(work) ? 1 : std::min({items, workers, threads(), kMaxWorkers});
    if (workers <= 1) {
      for (int64_t item = 0; item < items; ++item) body(int64_t{0}, item);
      return;
    }
    struct alignas(64) Share {
      std::atomic<int64_t> next;
      int64_t end;
    };
    Share shares[kMaxWorkers];
    for (int64_t w = 0; w < workers; ++w) {
      shares[w].next = w * items / workers;
      shares[w].end = (w + 1) * items / workers;
    }
    sdk::parallel_for(device.pool, workers, [&](int64_t worker) {
      for (int64_t w = 0; w < workers; ++w) {
        Share& share = shares[(worker + w) % workers];
        for (int64_t item = share.next++; item < share.end; item = share.next++) body(worker, item);
      }
    });
  }
  // body(part) for each part; must not throw.
  template <class Body>
  void parallel(int64_t parts, Body&& body) const {
    take(parts, kMaxWorkers, [&](int64_t, int64_t part) { body(part); });
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

 private:
  int64_t threads() const { return device.pool == nullptr ? 1 : device.pool->num_threads(device.pool); }
  // Handing out parts, to a thread that is awake, would take about as long as the op.
  bool small(double work) const {
    constexpr double kSmall = 32768, kWorkPerElement = 8;
    double elements = work / kWorkPerElement;
    for (const auto* operands : {&problem.inputs(), &problem.outputs()}) {
      for (const Shape& operand : *operands) elements += static_cast<double>(operand.elements());
    }
    return elements < kSmall;
  }
};

using Entry = CpuOp<Call>;

inline int64_t real_bytes(const Problem& problem) { return dtype_bytes(problem.dtype()); }

std::span<const Entry> embedding_ops();
std::span<const Entry> norm_ops();
std::span<const Entry> linear_ops();
std::span<const Entry> routing_ops();
std::span<const Entry> grouped_linear_ops();
std::span<const Entry> attention_ops();
std::span<const Entry> elementwise_ops();
std::span<const Entry> loss_ops();
std::span<const Entry> head_ops();
std::span<const Entry> shape_ops();
std::span<const Entry> shard_ops();

}  // namespace tenon::kernels::cpu
