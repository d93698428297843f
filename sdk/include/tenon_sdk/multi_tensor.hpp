// What element-wise CPU optimizers share: one pass over many tensors, cut into chunks for the host's threads,
// and one loop compiled for several instruction sets. Compile with -ffp-contract=off: then every instruction
// set, every cut and every vector remainder does the same IEEE operations, and an element's bits depend on
// that element alone.
#pragma once

#include <algorithm>
#include <string>

#include "tenon/optimizer.h"
#include "tenon_sdk/isa.hpp"
#include "tenon_sdk/plugin.hpp"

namespace tenon::optimizer {

// Elements that one part updates: large against the cost of handing out a part, small against a tensor.
constexpr uint64_t kChunk = 1 << 15;

using sdk::best_isa;
using sdk::Isa;
using sdk::run_on;
using sdk::supported;

// base to the power n >= 0 by squaring: unlike pow() the same bits on every machine.
inline double power(double base, int64_t n) {
  double result = 1.0;
  for (; n > 0; n /= 2, base *= base) {
    if (n % 2 == 1) result *= base;
  }
  return result;
}

// Refuses what the arithmetic cannot do, before anything has been touched.
inline void check_step(const tenon_stream* stream, tenon_update* const* updates, uint32_t num_updates,
                       const tenon_step_scalars& scalars) {
  if (stream != nullptr && stream->device.device_type != kDLCPU) {
    throw sdk::Failure(TENON_E_UNSUPPORTED, "updates on the CPU only, not on device type " +
                                                std::to_string(static_cast<int>(stream->device.device_type)));
  }
  if (scalars.step < 1) {
    throw sdk::Failure(TENON_E_ARGUMENT, "step = " + std::to_string(scalars.step) + ": steps count from 1");
  }
  for (uint32_t i = 0; i < num_updates; ++i) {
    if (updates[i]->dtype == TENON_F32 || updates[i]->dtype == TENON_F64) continue;
    throw sdk::Failure(TENON_E_UNSUPPORTED, "update " + std::to_string(i) + " has dtype " +
                                                std::to_string(updates[i]->dtype) +
                                                ": parameters must be f32 or f64");
  }
}

// Calls body(update, first, count) for every chunk of every tensor, on the host's threads.
template <class Body>
void for_each_chunk(const tenon_parallel* pool, tenon_update* const* updates, uint32_t num_updates,
                    const Body& body) {
  const auto num_chunks = [](const tenon_update& u) { return u.count / kChunk + (u.count % kChunk != 0); };
  uint64_t parts = 0;
  for (uint32_t i = 0; i < num_updates; ++i) parts += num_chunks(*updates[i]);
  sdk::parallel_for(pool, static_cast<int64_t>(parts), [&](int64_t part) {
    auto chunk = static_cast<uint64_t>(part);
    uint32_t i = 0;
    while (chunk >= num_chunks(*updates[i])) chunk -= num_chunks(*updates[i++]);
    const uint64_t first = chunk * kChunk;
    body(*updates[i], first, std::min(kChunk, updates[i]->count - first));
  });
}

}  // namespace tenon::optimizer
