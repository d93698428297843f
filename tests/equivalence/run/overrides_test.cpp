// Kinds of op whose kernels are another plugin's: gradients within the gates, each kind by itself, and what
// is said where the other plugin cannot do it.
#include <atomic>
#include <mutex>
#include <set>

#include "close.hpp"
#include "combination.hpp"
#include "virtual_run.hpp"

namespace tenon::test {
namespace {

// kernels/cpu, but for `kinds`, which kernels/reference runs; f64.
Json recipe_with(const std::vector<std::string>& kinds, const std::string& base = "cpu", bool exact = false) {
  TinyModel tiny;
  Json recipe = tiny_recipe(gpt2_model(tiny), corpus_file(), tiny.context);
  recipe["precision"] = "f64";
  recipe["numerics"]["mode"] = exact ? "exact" : "fast";
  recipe["microbatches"] = exact ? 1 : 2;
  recipe["kernels"] = {{"plugin", "kernels/" + base}, {"options", Json::object()}};
  for (const std::string& kind : kinds)
    recipe["kernels"]["overrides"][kind] = {{"plugin", "kernels/reference"}, {"options", Json::object()}};
  return recipe;
}

// A table of f64 kernels that counts calls, and passes them on with `factor` times the first output.
class Counted {
 public:
  static void put_between(PluginSet& plugins, double factor) {
    auto& table = plugins.kernels.plugins.at(1).table;
    real_ = table;
    factor_ = factor;
    calls_ = 0;
    elements_.clear();
    table_ = *real_;
    table_.prepare = prepare;
    table_.enqueue = enqueue;
    table = &table_;
  }
  static int calls() { return calls_; }
  static std::set<std::string> kinds() { return kinds_; }

 private:
  struct Output {
    uint32_t index;
    int64_t elements;
  };

  static tenon_code prepare(tenon_device* device, const tenon_kernel_desc* desc, tenon_kernel** out,
                            tenon_error* error) {
    const tenon_code code = real_->prepare(device, desc, out, error);
    if (code != TENON_OK) return code;
    Output output{desc->num_inputs, 1};
    for (uint32_t d = 0; d < desc->outputs[0].ndim; ++d) output.elements *= desc->outputs[0].dims[d];
    const std::lock_guard lock(mutex_);
    elements_[*out] = output;
    kinds_.insert(desc->kind);
    return code;
  }

  static tenon_code enqueue(tenon_kernel* kernel, const tenon_stream* stream, void* const* operands,
                            tenon_error* error) {
    const tenon_code code = real_->enqueue(kernel, stream, operands, error);
    ++calls_;
    const Output output = [kernel] {
      const std::lock_guard lock(mutex_);
      return elements_.at(kernel);
    }();
    auto* const values = static_cast<double*>(operands[output.index]);
    for (int64_t i = 0; i < output.elements; ++i) values[i] *= factor_;
    return code;
  }

  inline static const tenon_kernels* real_ = nullptr;
  inline static tenon_kernels table_{};
  inline static double factor_ = 1;
  inline static std::atomic<int> calls_{0};
  inline static std::map<tenon_kernel*, Output> elements_;
  inline static std::set<std::string> kinds_;
  inline static std::mutex mutex_;
};

RunOptions counted(double factor, int ranks = 1) {
  return {.ranks = ranks, .steps = 2, .change_plugins = [factor](PluginSet& plugins) {
            Counted::put_between(plugins, factor);
          }};
}

TEST(overrides, gradients_are_within_the_gates) {
  const RunRecord reference = must_run(recipe_with({}, "reference"), {.steps = 2});
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    const RunRecord mixed = must_run(recipe_with({"gelu", "gelu_dgrad"}), counted(1, ranks));
    expect_close(reference, mixed, Dtype::f64, 1e-10);
    // Two steps, and the layers of each, forward and back, of each microbatch and rank.
    const int layers = 2, microbatches = 2;
    EXPECT_EQ(Counted::calls(), 2 * 2 * layers * microbatches * ranks);
  }
  EXPECT_EQ(Counted::kinds(), (std::set<std::string>{"gelu", "gelu_dgrad"})) << "and nothing else";
}

// What the gate is for: a kernel that is wrong, of the one or of the other kind alone.
TEST(overrides, an_op_and_its_gradient_are_overridden_apart) {
  const RunRecord reference = must_run(recipe_with({}, "reference"), {.steps = 2});
  const auto beyond = [&](const char* kind, double factor) {
    const RunRecord mixed = must_run(recipe_with({kind}), counted(factor));
    const double loss = std::abs(mixed.steps[0].result.loss / reference.steps[0].result.loss - 1);
    return std::pair{loss > 1e-10,
                     worst_gradient(reference.steps[0], mixed.steps[0], Dtype::f64).first > 1e-10};
  };
  EXPECT_EQ(beyond("gelu_dgrad", 1), (std::pair{false, false}));
  EXPECT_EQ(beyond("gelu_dgrad", 1.001), (std::pair{false, true}));
  EXPECT_EQ(beyond("gelu", 1), (std::pair{false, false}));
  EXPECT_EQ(beyond("gelu", 1.001), (std::pair{true, true}));
}

TEST(overrides, of_exact_kernels_keep_the_bits_whatever_the_number_of_ranks) {
  const Json recipe = recipe_with({"gelu", "layernorm_dgrad"}, "cpu", true);
  const RunRecord one = must_run(recipe, {.steps = 2});
  expect_same_bits(one, must_run(recipe, {.ranks = 2, .steps = 2}));
}

// A table that says something else of its kernels than the plugin.
class Described {
 public:
  using Change = void (*)(tenon_kernel_info& info);  // of which there may be no more than the flags
  static void put_between(PluginSet& plugins, Change change, tenon_code code) {
    auto& table = plugins.kernels.plugins.at(1).table;
    real_ = table;
    change_ = change;
    code_ = code;
    table_ = *real_;
    table_.describe = describe;
    table = &table_;
  }

 private:
  static tenon_code describe(const tenon_kernels_config* config, const tenon_kernel_desc* desc,
                             tenon_kernel_info* info, tenon_error* error) {
    const tenon_code code = real_->describe(config, desc, info, error);
    change_(*info);
    return code != TENON_OK ? code : code_;
  }

  inline static const tenon_kernels* real_ = nullptr;
  inline static tenon_kernels table_{};
  inline static Change change_ = nullptr;
  inline static tenon_code code_ = TENON_OK;
};

RunOptions described(Described::Change change, tenon_code code = TENON_OK) {
  return {.change_plugins = [=](PluginSet& plugins) { Described::put_between(plugins, change, code); }};
}

void change_nothing(tenon_kernel_info&) {}

TEST(overrides, by_a_plugin_without_the_kind_are_a_mistake_at_their_place) {
  const auto run = run_virtual(recipe_with({"gelu"}), described(change_nothing, TENON_E_UNSUPPORTED));
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().code, "A011");
  EXPECT_TRUE(run.error().cause.starts_with("kernels/reference: ")) << run.error().cause;
  EXPECT_EQ(run.error().place, "/kernels/overrides/gelu");
  EXPECT_EQ(run.error().fix, "remove it, or name a plugin that has such a kernel");
}

TEST(overrides, of_a_kind_that_the_model_lacks_are_a_mistake_at_their_place) {
  const auto refused = [](const std::string& kind, const std::string& missing, int ranks = 1) {
    SCOPED_TRACE(kind);
    const auto run = run_virtual(recipe_with({kind}), {.ranks = ranks, .steps = 1});
    if (missing.empty()) {
      EXPECT_TRUE(run.ok()) << run.error().text();
      return;
    }
    ASSERT_FALSE(run.ok());
    EXPECT_EQ(run.error().code, "R005");
    EXPECT_EQ(run.error().cause, "the model has no op of kind '" + missing + "'");
    EXPECT_EQ(run.error().place, "/kernels/overrides/" + kind);
    EXPECT_EQ(run.error().fix, "remove it");
  };
  refused("swiglu", "swiglu");  // GPT-2 has gelu, and layernorm
  refused("swiglu_dgrad", "swiglu_dgrad");
  refused("add_rmsnorm", "rmsnorm");
  // What a model has in some plan, if not in this one: cut otherwise, fused or not, on more ranks or fewer.
  for (const char* kind : {"gelu_dgrad", "bias_gelu", "linear_cross_entropy", "cross_entropy_shard", "add",
                           "concat", "sqnorm", "clip_scale", "sum"})
    refused(kind, "");
  refused("embedding_shard", "", 2);
}

TEST(overrides, exactness_is_asked_of_the_plugin_that_runs_the_kind) {
  const auto run = run_virtual(recipe_with({"gelu"}, "cpu", true),
                               described([](tenon_kernel_info& info) { info.flags = 0; }));
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().code, "P012");
  EXPECT_EQ(run.error().cause, "kernels/reference gives no exact 'gelu'");
}

TEST(overrides, memory_is_that_which_the_plugin_of_the_kind_asks_for) {
  static constexpr uint64_t kKept = 1 << 20;
  const auto kept = [](Described::Change change) {
    uint64_t out = 0;
    RunOptions options = described(change);
    options.after = [&out](Session& session) {
      out = session.memory().kernels_private;
      return Status{};
    };
    must_run(recipe_with({"gelu"}), options);
    return out;
  };
  const uint64_t more = kept([](tenon_kernel_info& info) {
    if (TENON_HAS(&info, tenon_kernel_info, private_bytes)) info.private_bytes = kKept;
  });
  EXPECT_EQ(more - kept(change_nothing), kKept) << "of the one gelu that is prepared";
}

}  // namespace
}  // namespace tenon::test
