// Drives a loaded optimizer plugin over tensors with made-up gradients, whole or cut into pieces.
#pragma once

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "plugin_host.hpp"
#include "tenon/optimizer.h"

namespace tenon::test {

template <class T>
constexpr uint32_t kDtype = sizeof(T) == 4 ? TENON_F32 : TENON_F64;

// A parameter, its state, and one gradient for each step.
template <class T>
struct OptimizerCase {
  OptimizerCase(size_t count, size_t num_slots, int num_steps, uint64_t seed = 1) : param(count) {
    std::mt19937_64 engine(seed);
    std::normal_distribution<double> normal;
    for (T& p : param) p = static_cast<T>(normal(engine));
    slots.assign(num_slots, std::vector<T>(count, T{0}));
    grads.assign(num_steps, std::vector<T>(count));
    for (std::vector<T>& grad : grads) {
      for (T& g : grad) g = static_cast<T>(normal(engine));
    }
  }

  bool same_bits(const OptimizerCase& other) const {
    const auto equal = [](const std::vector<T>& a, const std::vector<T>& b) {
      return a.size() == b.size() &&
             (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
    };
    bool same = equal(param, other.param) && slots.size() == other.slots.size();
    for (size_t s = 0; same && s < slots.size(); ++s) same = equal(slots[s], other.slots[s]);
    return same;
  }

  std::vector<T> param;
  std::vector<std::vector<T>> slots;
  std::vector<std::vector<T>> grads;
};

// A piece of a parameter that is nothing but a vector.
inline tenon_update update_of(uint32_t dtype, uint64_t count, void* param, const void* grad,
                              void* const* slots) {
  tenon_update out{};
  out.struct_size = sizeof out;
  out.dtype = dtype;
  out.count = count;
  out.rows = 1;
  out.param = param;
  out.grad = grad;
  out.slots = slots;
  out.name = "param";
  return out;
}

inline tenon_step_scalars scalars_of(int64_t step, double grad_scale = 1.0, double lr = 0.1) {
  return {sizeof(tenon_step_scalars), 0, step, lr, grad_scale};
}

// One state of an optimizer, open until it is destroyed.
class OptimizerRun {
 public:
  OptimizerRun(const LoadedPlugin& plugin, const OptionValues& options)
      : table_(plugin.table<tenon_optimizer>(TENON_OPTIMIZER)) {
    tenon_error error = empty_error();
    const tenon_optimizer_config config = {sizeof config, options.size(), plugin.host(), options.data()};
    if (table_.open(&config, &state_, &error) != TENON_OK) {
      throw std::runtime_error(error.message);
    }
  }
  ~OptimizerRun() { table_.close(state_); }
  OptimizerRun(const OptimizerRun&) = delete;
  OptimizerRun& operator=(const OptimizerRun&) = delete;

  tenon_optimizer_info info() const {
    tenon_optimizer_info info{};
    info.struct_size = sizeof info;
    tenon_error error = empty_error();
    if (table_.describe(state_, &info, &error) != TENON_OK) throw std::runtime_error(error.message);
    return info;
  }

  // Step `step` (from 1) on the pieces of `c` between consecutive cuts (ascending, inside the tensor).
  template <class T>
  void step(OptimizerCase<T>& c, int64_t step, double lr, double grad_scale,
            const std::vector<size_t>& cuts = {}) const {
    std::vector<size_t> ends = cuts;
    ends.push_back(c.param.size());
    std::vector<tenon_update> updates;
    std::vector<std::vector<void*>> slots(ends.size());
    size_t begin = 0;
    for (size_t i = 0; i < ends.size(); begin = ends[i++]) {
      for (std::vector<T>& slot : c.slots) slots[i].push_back(slot.data() + begin);
      updates.push_back(update_of(kDtype<T>, ends[i] - begin, c.param.data() + begin,
                                  c.grads[step - 1].data() + begin, slots[i].data()));
    }
    const tenon_step_scalars scalars = {sizeof(tenon_step_scalars), 0, step, lr, grad_scale};
    std::vector<double> stats = whole_stats(updates, scalars);
    for (tenon_update& update : updates) update.stats = stats.data();
    run(updates, scalars);
  }

  // As the core makes them: of the pieces of one parameter, added up.
  std::vector<double> whole_stats(std::vector<tenon_update>& updates,
                                  const tenon_step_scalars& scalars) const {
    const uint32_t count = info().num_stats;
    std::vector<double> parts(updates.size() * count, 1e300), out(count);
    for (size_t i = 0; i < updates.size(); ++i) updates[i].stats = parts.data() + i * count;
    if (count > 0) call(table_.stats, updates, scalars);
    for (size_t i = 0; i < parts.size(); ++i) out[i % count] += parts[i];
    return out;
  }

  void run(std::vector<tenon_update>& updates, const tenon_step_scalars& scalars) const {
    call(table_.step, updates, scalars);
  }

 private:
  void call(decltype(tenon_optimizer::step) function, std::vector<tenon_update>& updates,
            const tenon_step_scalars& scalars) const {
    std::vector<const tenon_update*> pointers;
    for (tenon_update& update : updates) pointers.push_back(&update);
    const tenon_stream stream = {{kDLCPU, 0}, nullptr};
    tenon_error error = empty_error();
    const tenon_code code =
        function(state_, &stream, pointers.data(), static_cast<uint32_t>(pointers.size()), &scalars, &error);
    if (code != TENON_OK) throw std::runtime_error(error.message);
  }

  const tenon_optimizer& table_;
  tenon_optimizer_state* state_ = nullptr;
};

// The message of the std::runtime_error that body() throws, or "" if it throws none.
template <class Body>
std::string message_of(Body&& body) {
  try {
    body();
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "";
}

}  // namespace tenon::test
