// parallel/tensor: tensor parallelism (Shoeybi et al., "Megatron-LM", 2019). Cuts parameters along the dims
// that their structure names: key-value groups of attention, the inner width of an mlp, the vocabulary. Which
// activations are cut and where sums are exchanged follows from that in the core. With `sequence`, the
// regions between (norms, residuals, dropout) are cut along the sequence (Korthikanti et al., 2022).
#include "tenon_sdk/pass.hpp"

namespace {

using namespace tenon::sdk;

struct Settings {
  std::string axis;
  int64_t size = 1;
  bool replicate_attention = false;
};

constexpr std::string_view kGroup = "group", kVocab = "vocab";

[[noreturn]] void refuse(const PassValue& param, const PassDim& dim, const Settings& settings) {
  const std::string what = "'" + param.name + "': " + dim.name + " " + std::to_string(dim.size) +
                           " is not divisible by " + settings.axis + " " + std::to_string(settings.size);
  if (dim.name == kGroup) {
    throw Failure(TENON_E_RECIPE, what +
                                      " (groups of query heads that share keys and values): use a smaller " +
                                      settings.axis + ", or attention = \"replicate\"");
  }
  if (dim.name == kVocab) {
    const int64_t padded = (dim.size / settings.size + 1) * settings.size;
    throw Failure(TENON_E_RECIPE, what + ": pad the model's vocabulary to " + std::to_string(padded) +
                                      ", or set vocabulary = false");
  }
  throw Failure(TENON_E_RECIPE, what + ": choose another width, or a smaller " + settings.axis);
}

// Cuts a parameter along the first of its dims that is named in `dims`.
void cut(PassGraph& graph, const PassValue& param, const std::vector<std::string>& dims,
         const Settings& settings) {
  for (uint32_t d = 0; d < param.dims.size(); ++d) {
    const PassDim& dim = param.dims[d];
    if (std::find(dims.begin(), dims.end(), dim.name) == dims.end()) continue;
    if (dim.size % settings.size != 0) {
      if (dim.name == kGroup && settings.replicate_attention) return;
      refuse(param, dim, settings);
    }
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
  std::vector<std::string> dims{std::string(kGroup), "ffn"};
  if (options.boolean("vocabulary")) dims.emplace_back(kVocab);
  for (const PassValue& param : graph.values(TENON_ROLE_PARAM)) cut(graph, param, dims, settings);
  if (!options.boolean("sequence")) return;
  for (const PassValue& value : graph.values(TENON_ROLE_ACT)) {
    if (between_regions(value)) graph.shard(value.id, 1, settings.axis);
  }
}

constexpr tenon_option_decl kAxis = string_option("axis", "mesh axis that parameters are cut over", "tp");
constexpr tenon_option_decl kSequence =
    bool_option("sequence", "cut the regions between along the sequence (sequence parallelism)", "false");
constexpr tenon_option_decl kVocabulary =
    bool_option("vocabulary", "cut embedding, head and cross-entropy along the vocabulary", "true");
constexpr tenon_option_decl kAttention =
    string_option("attention", "what to do with groups of heads that the axis does not divide", "refuse",
                  "refuse|replicate");
constexpr const tenon_option_decl* kOptions[] = {&kAxis, &kSequence, &kVocabulary, &kAttention};

constexpr tenon_pass kPass = make_pass<run>(TENON_PHASE_A, "tp", "tensor");

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = plugin_with<TENON_PASS, kPass>(
    "parallel/tensor", "0.1.0", "Tensor parallelism: cuts attention by heads, mlps by width, the vocabulary",
    kOptions);
