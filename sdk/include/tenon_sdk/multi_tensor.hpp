// tenon_sdk/multi_tensor.hpp - the table tenon.optimizer/1 of an element-wise optimizer on the CPU, made of
// its rule: one pass over many tensors, cut into chunks for the host's threads, and one loop compiled for
// several instruction sets. Header-only. Compile with -ffp-contract=off: then every instruction set, every
// cut and every vector remainder does the same IEEE operations, and an element's bits depend on that element
// alone.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "tenon/optimizer.h"
#include "tenon_sdk/isa.hpp"
#include "tenon_sdk/plugin.hpp"

namespace tenon::optimizer {

// Elements that one part updates: large against the cost of handing out a part, small against a tensor.
constexpr uint64_t kChunk = 1 << 15;
// Fewer elements are updated before another thread has woken.
constexpr uint64_t kAlone = 1 << 17;

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

// State of a parameter, of its dtype unless said otherwise.
constexpr tenon_slot_decl slot(const char* name, uint32_t dtype = TENON_SLOT_DTYPE_OF_PARAM) {
  return {sizeof(tenon_slot_decl), dtype, name};
}

// Refuses what the arithmetic cannot do, before anything has been touched.
// `stats`: the rule reads them.
inline void check_step(const tenon_stream* stream, const tenon_update* const* updates, uint32_t num_updates,
                       const tenon_step_scalars& scalars, bool stats) {
  for (uint32_t i = 0; i < num_updates; ++i) {
    const bool fits =
        stats ? TENON_HAS(updates[i], tenon_update, stats) : TENON_HAS(updates[i], tenon_update, slots);
    if (fits) continue;
    throw sdk::Failure(TENON_E_VERSION, "update " + std::to_string(i) + " has struct_size " +
                                            std::to_string(updates[i]->struct_size) +
                                            ", which leaves no room for its " +
                                            (stats ? "statistics" : "slots"));
  }
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

inline uint64_t num_chunks(const tenon_update& u) { return u.count / kChunk + (u.count % kChunk != 0); }

inline uint64_t num_chunks(const tenon_update* const* updates, uint32_t num_updates) {
  uint64_t chunks = 0;
  for (uint32_t i = 0; i < num_updates; ++i) chunks += num_chunks(*updates[i]);
  return chunks;
}

// Calls body(chunk, update, first, count) for every chunk of every tensor, on the host's threads. Chunks are
// counted in the order of the tensors.
template <class Body>
void for_each_chunk(const tenon_parallel* pool, const tenon_update* const* updates, uint32_t num_updates,
                    const Body& body) {
  uint64_t elements = 0;
  for (uint32_t i = 0; i < num_updates; ++i) elements += updates[i]->count;
  const uint64_t chunks = num_chunks(updates, num_updates);
  sdk::parallel_for(elements < kAlone ? nullptr : pool, static_cast<int64_t>(chunks), [&](int64_t index) {
    auto chunk = static_cast<uint64_t>(index);
    uint32_t i = 0;
    while (chunk >= num_chunks(*updates[i])) chunk -= num_chunks(*updates[i++]);
    const uint64_t first = chunk * kChunk;
    body(static_cast<uint64_t>(index), *updates[i], first, std::min(kChunk, updates[i]->count - first));
  });
}

// `Optimizer` has: Options, what it makes of the user's options, and parse(), which throws sdk::Failure;
// slots(options), a span of pointers to the state that each parameter has; Constants<T>, made of Options and
// tenon_step_scalars; and update<T>(isa, options, constants, update, first, count), which runs its rule on a
// chunk of one tensor. If the rule reads sums over whole parameters, in update.stats: kStats, how many, and
// measure<T>(isa, options, constants, update, first, count, sums), which adds those of a chunk to `sums`.
template <class Optimizer>
class MultiTensor {
 public:
  static constexpr tenon_optimizer table() {
    return {sizeof(tenon_optimizer), kDLCPU, open, close, describe, stats_or_null(), step};
  }

 private:
  static constexpr uint32_t kStats = [] {
    if constexpr (requires { Optimizer::kStats; }) return Optimizer::kStats;
    return uint32_t{0};
  }();
  static constexpr decltype(tenon_optimizer::stats) stats_or_null() {
    if constexpr (kStats > 0) return stats;
    return nullptr;
  }

  struct State {
    typename Optimizer::Options options;
    Isa isa;
    const tenon_parallel* pool;
  };
  // The ABI's opaque type stands for State.
  static State* state_of(tenon_optimizer_state* state) { return reinterpret_cast<State*>(state); }

  static tenon_code open(const tenon_optimizer_config* given, tenon_optimizer_state** out,
                         tenon_error* error) {
    return sdk::guard(error, [&] {
      const auto config = sdk::read(given, TENON_END(tenon_optimizer_config, options));
      *out = reinterpret_cast<tenon_optimizer_state*>(
          new State{Optimizer::parse(sdk::Options(config)), best_isa(), sdk::threads_of(config.host)});
    });
  }

  static void close(tenon_optimizer_state* state) { delete state_of(state); }

  static tenon_code describe(const tenon_optimizer_state* state, tenon_optimizer_info* info, tenon_error*) {
    const auto slots = Optimizer::slots(reinterpret_cast<const State*>(state)->options);
    const tenon_optimizer_info mine = {.struct_size = sizeof mine,
                                       .num_slots = static_cast<uint32_t>(slots.size()),
                                       .slots = slots.data(),
                                       .granule = TENON_GRANULE_ELEMENT,
                                       .num_stats = kStats};
    tenon_fill(info, &mine);
    return TENON_OK;
  }

  struct Step {
    const State& state;
    typename Optimizer::template Constants<float> single;
    typename Optimizer::template Constants<double> twice;
  };
  static Step begin(tenon_optimizer_state* opaque, const tenon_stream* stream,
                    const tenon_update* const* updates, uint32_t num_updates,
                    const tenon_step_scalars* given) {
    const auto scalars = sdk::read(given, TENON_END(tenon_step_scalars, grad_scale));
    check_step(stream, updates, num_updates, scalars, kStats > 0);
    const State& state = *state_of(opaque);
    return {state, {state.options, scalars}, {state.options, scalars}};
  }

  static tenon_code step(tenon_optimizer_state* opaque, const tenon_stream* stream,
                         const tenon_update* const* updates, uint32_t num_updates,
                         const tenon_step_scalars* given, tenon_error* error) {
    return sdk::guard(error, [&] {
      const Step now = begin(opaque, stream, updates, num_updates, given);
      const State& state = now.state;
      for_each_chunk(
          state.pool, updates, num_updates,
          [&](uint64_t, const tenon_update& u, uint64_t first, uint64_t count) {
            if (u.dtype == TENON_F32) {
              Optimizer::template update<float>(state.isa, state.options, now.single, u, first, count);
            } else {
              Optimizer::template update<double>(state.isa, state.options, now.twice, u, first, count);
            }
          });
    });
  }

  static tenon_code stats(tenon_optimizer_state* opaque, const tenon_stream* stream,
                          const tenon_update* const* updates, uint32_t num_updates,
                          const tenon_step_scalars* given, tenon_error* error) {
    return sdk::guard(error, [&] {
      const Step now = begin(opaque, stream, updates, num_updates, given);
      const State& state = now.state;
      // Of each chunk: they are added in order, whichever thread had them.
      std::vector<double> sums(num_chunks(updates, num_updates) * kStats);
      for_each_chunk(
          state.pool, updates, num_updates,
          [&](uint64_t chunk, const tenon_update& u, uint64_t first, uint64_t count) {
            double* mine = sums.data() + chunk * kStats;
            if (u.dtype == TENON_F32) {
              Optimizer::template measure<float>(state.isa, state.options, now.single, u, first, count, mine);
            } else {
              Optimizer::template measure<double>(state.isa, state.options, now.twice, u, first, count, mine);
            }
          });
      const double* next = sums.data();
      for (uint32_t i = 0; i < num_updates; ++i) {
        std::fill_n(updates[i]->stats, kStats, 0.0);
        for (uint64_t c = num_chunks(*updates[i]); c > 0; --c) {
          for (uint32_t k = 0; k < kStats; ++k) updates[i]->stats[k] += *next++;
        }
      }
    });
  }
};

}  // namespace tenon::optimizer
