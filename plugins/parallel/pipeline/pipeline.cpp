// parallel/pipeline: pipeline parallelism. Puts every op on a stage: which layers belong together. In which
// order stages work on microbatches is a schedule's matter.
#include <cmath>
#include <numeric>

#include "tenon_sdk/pass.hpp"

namespace {

using namespace tenon::sdk;

// What the model consists of, in order: work in front of the first layer, each layer, work behind the last.
struct Parts {
  int32_t layers = 0;
  std::vector<double> flops;  // layers + 2
  std::vector<size_t> ops;    // as many
};

// What has a stage without layers.
struct Apart {
  bool embedding = false, head = false;
  int32_t stages() const { return (embedding ? 1 : 0) + (head ? 1 : 0); }
};

// The layer of an op, -1 where it belongs to none.
int32_t layer_of(const PassGraph& graph, tenon_op_id op) { return graph.value(graph.outputs(op)[0]).layer; }

// The part that each op belongs to: that of its layer, or of the layer before it; else it is in front or
// behind.
std::vector<int32_t> parts_of(const PassGraph& graph, const std::vector<tenon_op_id>& ops, Parts& parts) {
  std::vector<int32_t> out;
  size_t behind = 0;  // the first op behind the last layer
  for (size_t i = 0; i < ops.size(); ++i) {
    const int32_t layer = layer_of(graph, ops[i]);
    if (layer >= 0) behind = i + 1;
    parts.layers = std::max(parts.layers, layer + 1);
    out.push_back(layer >= 0 ? layer + 1 : parts.layers);
  }
  std::fill(out.begin() + static_cast<ptrdiff_t>(behind), out.end(), parts.layers + 1);
  parts.flops.assign(static_cast<size_t>(parts.layers) + 2, 0);
  parts.ops.assign(parts.flops.size(), 0);
  for (size_t i = 0; i < ops.size(); ++i) {
    parts.flops[static_cast<size_t>(out[i])] += graph.flops(ops[i]);
    ++parts.ops[static_cast<size_t>(out[i])];
  }
  return out;
}

// Layers of each stage: equal numbers, what is left over goes to the first stages.
std::vector<int32_t> by_layers(int32_t layers, int32_t stages) {
  std::vector<int32_t> out(static_cast<size_t>(stages), layers / stages);
  for (int32_t i = 0; i < layers % stages; ++i) ++out[static_cast<size_t>(i)];
  return out;
}

// The cut into runs of layers whose most expensive stage is cheapest; embedding and head count with the first
// and the last stage, if these are not others. best[s][n]: the least cost of the most expensive of the first
// s stages with n layers.
std::vector<int32_t> by_cost(const Parts& parts, int32_t stages, const Apart& apart) {
  const auto layers = static_cast<size_t>(parts.layers), count = static_cast<size_t>(stages);
  std::vector<double> before(layers + 1);
  std::partial_sum(parts.flops.begin() + 1, parts.flops.end() - 1, before.begin() + 1);
  const auto cost = [&](size_t stage, size_t from, size_t to) {
    return before[to] - before[from] + (stage == 0 && !apart.embedding ? parts.flops.front() : 0) +
           (stage + 1 == count && !apart.head ? parts.flops.back() : 0);
  };
  std::vector<std::vector<double>> best(count + 1, std::vector<double>(layers + 1, INFINITY));
  std::vector<std::vector<size_t>> from(count + 1, std::vector<size_t>(layers + 1));
  best[0][0] = 0;
  for (size_t s = 1; s <= count; ++s) {
    for (size_t n = s; n <= layers; ++n) {
      for (size_t m = s - 1; m < n; ++m) {
        const double worst = std::max(best[s - 1][m], cost(s - 1, m, n));
        if (worst > best[s][n]) continue;  // of equal cuts, the one with more layers in front
        best[s][n] = worst;
        from[s][n] = m;
      }
    }
  }
  std::vector<int32_t> out(count);
  for (size_t s = count, n = layers; s > 0; n = from[s--][n])
    out[s - 1] = static_cast<int32_t>(n - from[s][n]);
  return out;
}

// "3,2,2,1"
std::vector<int32_t> by_hand(const std::string& text, int32_t layers, int32_t stages) {
  std::vector<int32_t> out;
  int32_t sum = 0;
  for (size_t at = 0; at <= text.size(); at = std::min(text.find(',', at), text.size()) + 1) {
    char* end = nullptr;
    const long n = std::strtol(text.c_str() + at, &end, 10);
    if (n < 0 || n > layers || end == text.c_str() + at || (*end != ',' && *end != '\0')) {
      throw Failure(TENON_E_RECIPE, "layers = \"" + text +
                                        "\": numbers of layers separated by commas, for "
                                        "instance \"3,2,2,1\"");
    }
    out.push_back(static_cast<int32_t>(n));
    sum += out.back();
  }
  if (static_cast<int32_t>(out.size()) != stages || sum != layers) {
    throw Failure(TENON_E_RECIPE, "layers = \"" + text + "\" names " + std::to_string(out.size()) +
                                      " stages with " + std::to_string(sum) + " layers; the pipeline has " +
                                      std::to_string(stages) + " stages, the model " +
                                      std::to_string(layers) + " layers: give " + std::to_string(stages) +
                                      " numbers that add up to " + std::to_string(layers));
  }
  for (size_t s = 1; s + 1 < out.size(); ++s) {
    if (out[s] == 0)
      throw Failure(TENON_E_RECIPE, "layers = \"" + text +
                                        "\": only the first and the last stage, which have embedding and "
                                        "head, can be without layers");
  }
  return out;
}

// Layers of each stage, where at most the first and the last have none. Where one rank has all of them, as
// when a run of several is evaluated on one, there is nothing to cut by hand.
std::vector<int32_t> layers_of_stages(const Parts& parts, int64_t ranks, int32_t stages,
                                      const Options& options) {
  if (ranks == 1 && stages <= parts.layers) return by_layers(parts.layers, stages);
  if (const std::string text = options.string("layers"); !text.empty())
    return by_hand(text, parts.layers, stages);
  const std::string what = options.string("apart");
  const Apart apart{what == "embedding" || what == "both", what == "head" || what == "both"};
  const int32_t with_layers = stages - apart.stages();
  if (with_layers < 1) {
    throw Failure(TENON_E_RECIPE, "apart = \"" + what + "\" with " + std::to_string(stages) +
                                      " stages leaves none for the layers: use at least " +
                                      std::to_string(apart.stages() + 1) + " stages");
  }
  if (with_layers > parts.layers) {
    throw Failure(TENON_E_RECIPE, std::to_string(with_layers) + " stages for " +
                                      std::to_string(parts.layers) + " layers: use at most " +
                                      std::to_string(parts.layers + apart.stages()) + " stages");
  }
  std::vector<int32_t> out = options.string("balance") == "cost" ? by_cost(parts, with_layers, apart)
                                                                 : by_layers(parts.layers, with_layers);
  if (apart.embedding) out.insert(out.begin(), 0);
  if (apart.head) out.push_back(0);
  return out;
}

// A stage has work.
void check_ends(const Parts& parts, const std::vector<int32_t>& counts) {
  const bool first = counts.front() == 0 && parts.ops.front() == 0;
  if (!first && !(counts.back() == 0 && parts.ops.back() == 0)) return;
  throw Failure(TENON_E_RECIPE,
                std::string("a stage without layers has nothing to do: the model has no ops ") +
                    (first ? "in front of its first layer" : "behind its last layer"));
}

void run(PassGraph& graph, const Options& options) {
  const std::string axis = options.string("axis");
  const auto stages = static_cast<int32_t>(graph.axis_size(axis) * options.integer("stages_per_rank"));
  const std::vector<tenon_op_id> ops = graph.ops();
  Parts parts;
  const std::vector<int32_t> part = parts_of(graph, ops, parts);
  const std::vector<int32_t> counts = layers_of_stages(parts, graph.axis_size(axis), stages, options);
  check_ends(parts, counts);
  std::vector<uint32_t> stage_of{0};  // of each part
  for (size_t s = 0; s < counts.size(); ++s)
    stage_of.insert(stage_of.end(), static_cast<size_t>(counts[s]), static_cast<uint32_t>(s));
  stage_of.push_back(static_cast<uint32_t>(stages - 1));
  for (size_t i = 0; i < ops.size(); ++i)
    graph.set_stage(ops[i], stage_of[static_cast<size_t>(part[i])], axis);
}

constexpr tenon_option_decl kAxis = string_option("axis", "mesh axis that stages are spread over", "pp");
constexpr tenon_option_decl kStages = int_option(
    "stages_per_rank", "stages on each rank; above 1 for the schedules that run several", "1", 1, 1024);
constexpr tenon_option_decl kBalance = string_option(
    "balance",
    "layers: equal numbers, the first stages take the rest; cost: by operations, with embedding and head",
    "layers", "layers|cost");
constexpr tenon_option_decl kApart =
    string_option("apart", "what has a stage of its own, the first or the last, without layers", "none",
                  "none|embedding|head|both");
constexpr tenon_option_decl kLayers = string_option(
    "layers",
    "layers of each stage by hand, for instance \"3,2,2,1\", or \"0,4,4,0\" with embedding and head apart; "
    "empty: by `balance` and `apart`",
    "");
constexpr const tenon_option_decl* kOptions[] = {&kAxis, &kStages, &kBalance, &kApart, &kLayers};

constexpr tenon_pass kPass = make_pass<run>(TENON_PHASE_A, "pp", "pipeline");

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = plugin_with<TENON_PASS, kPass>(
    "parallel/pipeline", "0.1.0", "Pipeline parallelism: spreads layers over a mesh axis as stages",
    kOptions);
