// parallel/tensor: tensor parallelism (Shoeybi et al., "Megatron-LM", 2019). Cuts parameters along the dims
// that their structure names: key-value groups of attention (and the query heads of each), the inner width of
// an mlp, the vocabulary. Which activations are cut and where sums are exchanged follows from that in the
// core. With `sequence`, the regions between (norms, residuals, dropout) are cut along the sequence
// (Korthikanti et al., 2022).
#include <numeric>
#include <set>

#include "tenon_sdk/pass.hpp"

namespace {

using namespace tenon::sdk;

struct Settings {
  std::string axis;
  int64_t size = 1;
  bool replicate_attention = false;
};

constexpr std::string_view kGroup = "group", kRep = "rep", kVocab = "vocab", kExpert = "expert";
constexpr std::string_view kNoAxis = "none";

[[noreturn]] void refuse(const PassValue& param, const PassDim& dim, const Settings& settings) {
  const std::string what = "'" + param.name + "': " + dim.name + " " + std::to_string(dim.size) +
                           " is not divisible by " + settings.axis + " " + std::to_string(settings.size);
  if (dim.name == kVocab) {
    const int64_t padded = (dim.size / settings.size + 1) * settings.size;
    throw Failure(TENON_E_RECIPE, what + ": pad the model's vocabulary to " + std::to_string(padded) +
                                      ", or set vocabulary = false");
  }
  throw Failure(TENON_E_RECIPE, what + ": choose another width, or a smaller " + settings.axis);
}

// How attention is cut. Groups of query heads that share keys and values are dealt out as far as they divide;
// the ranks that are left for each share out its query heads, and hold its keys and values all (as
// Megatron-LM does where there are fewer of these than ranks).
class Heads {
 public:
  Heads(PassGraph& graph, const std::vector<PassValue>& params, const Settings& settings)
      : graph_(graph), settings_(settings) {
    for (const PassValue& param : params) {
      const auto group = param.find(kGroup), rep = param.find(kRep);
      if (!group || !rep) continue;
      const int64_t groups = param.dims[*group].size, reps = param.dims[*rep].size;
      whole_ |= !divide(groups, reps);
      if (whole_ && !settings.replicate_attention) refuse_heads(param, groups, reps);
    }
  }

  // The first of the axis's atoms cut the groups, the others the query heads of each.
  void cut(const PassValue& param) {
    const auto group = param.find(kGroup), rep = param.find(kRep);
    if (whole_ || !group) return;
    const int64_t size = param.dims[*group].size, outer = std::gcd(size, settings_.size);
    if (outer == settings_.size) return graph_.shard(param.id, *group, settings_.axis);
    int64_t before = 1;
    for (const std::string& atom : graph_.atoms(settings_.axis, outer)) {
      if (before < outer)
        graph_.shard(param.id, *group, atom);
      else if (rep)
        graph_.shard(param.id, *rep, atom);
      before *= graph_.axis_size(atom);
    }
  }

  // Keys and values that several ranks hold: each of these has a part of their gradient, for its own query
  // heads. Weights' gradients are small, so they are summed instead, beside the others' of the layer's input.
  void sum_late(const PassValue& value) {
    const auto group = value.find(kGroup);
    if (whole_ || !group || value.find(kRep)) return;
    const int64_t outer = std::gcd(value.dims[*group].size, settings_.size);
    if (outer == settings_.size) return;
    int64_t before = 1;
    for (const std::string& atom : graph_.atoms(settings_.axis, outer)) {
      if (before >= outer) graph_.sum_late(value.id, atom);
      before *= graph_.axis_size(atom);
    }
  }

  // What is read by a projection whose weight several ranks hold.
  std::set<tenon_value_id> read_by_shared() const {
    std::set<tenon_value_id> out;
    for (tenon_op_id op : graph_.ops()) {
      const auto inputs = graph_.inputs(op);
      if (whole_ || inputs.size() != 2) continue;
      const PassValue weight = graph_.value(inputs[1]);
      const auto group = weight.find(kGroup);
      if (weight.role == TENON_ROLE_PARAM && group && !weight.find(kRep) &&
          weight.dims[*group].size % settings_.size != 0)
        out.insert(inputs[0]);
    }
    return out;
  }

 private:
  bool divide(int64_t groups, int64_t reps) const {
    return reps % (settings_.size / std::gcd(groups, settings_.size)) == 0;
  }
  [[noreturn]] void refuse_heads(const PassValue& param, int64_t groups, int64_t reps) const {
    throw Failure(TENON_E_RECIPE, "'" + param.name + "': " + std::to_string(groups) +
                                      " groups of query heads that share keys and values, " +
                                      std::to_string(reps) + " in each, cannot be dealt out over " +
                                      settings_.axis + " " + std::to_string(settings_.size) +
                                      ": use a smaller " + settings_.axis + ", or attention = \"replicate\"");
  }

  PassGraph& graph_;
  const Settings& settings_;
  bool whole_ = false;  // all ranks compute all of attention
};

// Cuts a parameter along the first of its dims that is named in `dims`.
void cut(PassGraph& graph, const PassValue& param, const std::vector<std::string>& dims,
         const Settings& settings) {
  for (uint32_t d = 0; d < param.dims.size(); ++d) {
    const PassDim& dim = param.dims[d];
    if (std::find(dims.begin(), dims.end(), dim.name) == dims.end()) continue;
    if (dim.size % settings.size != 0) refuse(param, dim, settings);
    return graph.shard(param.id, d, settings.axis);
  }
}

// The residual stream: [batch, seq, hidden].
bool between_regions(const PassValue& value) {
  return value.dims.size() == 3 && value.dims[0].name == "batch" && value.dims[1].name == "seq" &&
         value.dims[2].name == "hidden";
}

void run(PassGraph& graph, const Options& options) {
  Settings settings{options.string("axis"), 1, options.string("attention") == "replicate"};
  settings.size = graph.axis_size(settings.axis);
  std::vector<std::string> dims{"ffn"};
  if (options.boolean("vocabulary")) dims.emplace_back(kVocab);
  const std::vector<PassValue> params = graph.values(TENON_ROLE_PARAM);
  Settings experts = settings;
  if (const std::string axis = options.string("experts"); !axis.empty()) experts.axis = axis;
  const bool cuts_experts = experts.axis != kNoAxis;
  if (cuts_experts) experts.size = graph.axis_size(experts.axis);
  Heads heads(graph, params, settings);
  for (const PassValue& param : params) {
    heads.cut(param);
    const bool of_experts = param.find(kExpert).has_value();
    if (!of_experts || cuts_experts) cut(graph, param, dims, of_experts ? experts : settings);
  }
  const std::vector<PassValue> acts = graph.values(TENON_ROLE_ACT);
  for (const PassValue& value : acts) heads.sum_late(value);
  if (!options.boolean("sequence")) return;
  const std::set<tenon_value_id> gathered = heads.read_by_shared();
  for (const PassValue& value : acts) {
    if (!between_regions(value)) continue;
    // Gathered at once for queries, keys and values.
    if (gathered.count(value.id) > 0)
      graph.replicate(value.id, settings.axis);
    else
      graph.shard(value.id, 1, settings.axis);
  }
}

constexpr tenon_option_decl kAxis = string_option("axis", "mesh axis that parameters are cut over", "tp");
constexpr tenon_option_decl kSequence =
    bool_option("sequence", "cut the regions between along the sequence (sequence parallelism)", "false");
constexpr tenon_option_decl kVocabulary =
    bool_option("vocabulary", "cut embedding, head and cross-entropy along the vocabulary", "true");
constexpr tenon_option_decl kAttention =
    string_option("attention", "what to do with heads that cannot be dealt out over the axis", "refuse",
                  "refuse|replicate");
constexpr tenon_option_decl kExperts = string_option(
    "experts",
    "mesh axis that the width of experts is cut over, for instance a part of the other; none: they "
    "keep theirs; empty: the same",
    "");
constexpr const tenon_option_decl* kOptions[] = {&kAxis, &kSequence, &kVocabulary, &kAttention, &kExperts};

constexpr tenon_pass kPass = make_pass<run>(TENON_PHASE_A, "tp", "tensor");

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = plugin_with<TENON_PASS, kPass>(
    "parallel/tensor", "0.1.0", "Tensor parallelism: cuts attention by heads, mlps by width, the vocabulary",
    kOptions);
