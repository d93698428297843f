// What no check of a program can see, the comparison with one device does: positions that do not move with
// the part of the sequence, and a block of keys that is left out, planted between the core and the kernels.
#include <mutex>

#include "close.hpp"
#include "combination.hpp"
#include "virtual_run.hpp"

namespace tenon::test {
namespace {

enum class Fault : uint8_t { none, local_positions, forgotten_block };

// A table of kernels that passes calls on to the plugin's, changed as the fault says.
class FaultyKernels {
 public:
  static const tenon_kernels* around(const tenon_kernels* real, Fault fault) {
    real_ = real;
    fault_ = fault;
    known_.clear();
    table_ = *real;
    table_.prepare = prepare;
    table_.enqueue = enqueue;
    return &table_;
  }

 private:
  struct Known {
    std::string kind;
    std::vector<std::vector<int64_t>> in;
  };

  static tenon_code prepare(tenon_device* device, const tenon_kernel_desc* desc, tenon_kernel** out,
                            tenon_error* error) {
    const tenon_code code = real_->prepare(device, desc, out, error);
    if (code < 0) return code;
    Known known{desc->kind, {}};
    for (uint32_t i = 0; i < desc->num_inputs; ++i)
      known.in.emplace_back(desc->inputs[i].dims, desc->inputs[i].dims + desc->inputs[i].ndim);
    const std::lock_guard lock(mutex_);
    known_[*out] = std::move(known);
    return code;
  }

  static tenon_code enqueue(tenon_kernel* kernel, const tenon_stream* stream, void* const* operands,
                            tenon_error* error) {
    const Known known = [kernel] {
      const std::lock_guard lock(mutex_);
      return known_.at(kernel);
    }();
    if (fault_ == Fault::forgotten_block && known.kind == "attention_merge") return TENON_OK;
    if (fault_ != Fault::local_positions || !known.kind.starts_with("attention") || known.in.size() < 5)
      return real_->enqueue(kernel, stream, operands, error);
    // The positions are the last two inputs: every rank counts from 0, as if its part were the whole.
    std::vector<void*> changed(operands, operands + known.in.size());
    std::array<std::vector<int32_t>, 2> positions;
    for (size_t k : {0u, 1u}) {
      const auto& dims = known.in[known.in.size() - 2 + k];
      for (int64_t i = 0; i < dims[0] * dims[1]; ++i)
        positions[k].push_back(static_cast<int32_t>(i % dims[1]));
      changed[known.in.size() - 2 + k] = positions[k].data();
    }
    const size_t rest = known.kind == "attention" ? 3 : 4;  // outputs and workspace
    changed.insert(changed.end(), operands + known.in.size(), operands + known.in.size() + rest);
    return real_->enqueue(kernel, stream, changed.data(), error);
  }

  inline static const tenon_kernels* real_ = nullptr;
  inline static Fault fault_ = Fault::none;
  inline static tenon_kernels table_{};
  inline static std::map<tenon_kernel*, Known> known_;
  inline static std::mutex mutex_;
};

// How far the worst gradient is beyond what the gate of 1e-10 allows: above 1 it is refused.
double beyond_the_gate(const std::string& exchange, Fault fault) {
  const Combination c{"", "llama", {{"cp", 2}}, exchange};
  const auto one = run_virtual(recipe_of(c, corpus_file(), true), {.steps = 1});
  const auto many = run_virtual(recipe_of(c, corpus_file(), false),
                                {.ranks = 2, .steps = 1, .change_plugins = [fault](PluginSet& plugins) {
                                   auto& table = plugins.kernels.plugins.front().table;
                                   table = FaultyKernels::around(table, fault);
                                 }});
  EXPECT_TRUE(one.ok()) << (one.ok() ? "" : one.error().text());
  EXPECT_TRUE(many.ok()) << (many.ok() ? "" : many.error().text());
  if (!one.ok() || !many.ok()) return INFINITY;
  return worst_gradient(one->steps.at(0), many->steps.at(0), Dtype::f64).first / 1e-10;
}

TEST(faulty_context, none_planted_none_found) {
  EXPECT_LE(beyond_the_gate("ring", Fault::none), 1);
  EXPECT_LE(beyond_the_gate("all_gather", Fault::none), 1);
}

TEST(faulty_context, positions_that_are_not_shifted_are_found) {
  EXPECT_GT(beyond_the_gate("ring", Fault::local_positions), 1e3);
  EXPECT_GT(beyond_the_gate("all_gather", Fault::local_positions), 1e3);
}

TEST(faulty_context, a_block_that_is_left_out_is_found) {
  EXPECT_GT(beyond_the_gate("ring", Fault::forgotten_block), 1e3);
}

}  // namespace
}  // namespace tenon::test
