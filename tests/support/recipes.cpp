#include "recipes.hpp"

namespace tenon::test {

Json param(const std::string& name, const std::vector<Json>& dims, const std::string& kind, double std) {
  Json init{{"kind", kind}};
  if (kind == "normal") init["std"] = std;
  return {{"name", name}, {"dims", dims}, {"init", init}};
}

Json op(const std::string& kind, const std::vector<std::string>& in, const std::vector<std::string>& out,
        const Json& attrs) {
  Json json{{"op", kind}, {"in", in}, {"out", out}};
  if (!attrs.is_null()) json["attrs"] = attrs;
  return json;
}

Json dim(const char* name, int size) { return Json::array({name, size}); }

namespace {

// What a layer is: parameters, and ops from x to y.
struct Layer {
  std::vector<Json> params;
  Json ops;
};

// A name in layer j of a round of several.
std::string in_layer(const std::string& name, size_t j, size_t last) {
  if (const size_t at = name.find("{i}."); at != std::string::npos)
    return name.substr(0, at + 4) + std::to_string(j) + name.substr(at + 3);
  for (const char* given : {"positions", "samples", "step"})
    if (name == given) return name;
  const auto numbered = [](size_t i) { return "y." + std::to_string(i); };
  if (name == "x") return j == 0 ? "x" : numbered(j - 1);
  if (name == "y") return j == last ? "y" : numbered(j);
  return name + "." + std::to_string(j);
}

// The same round again and again: from x to y.
Json layers(const TinyModel& m, const std::vector<Layer>& round) {
  Json params = Json::array(), ops = Json::array(), sizes = Json::array();
  for (size_t j = 0; j < round.size(); ++j) {
    Layer layer = round[j];
    sizes.push_back(layer.ops.size());
    const auto rename = [&](Json& name) {
      if (round.size() > 1) name = in_layer(name.get<std::string>(), j, round.size() - 1);
    };
    for (Json& one : layer.params) {
      rename(one["name"]);
      params.push_back(one);
    }
    for (Json& one : layer.ops) {
      for (const char* side : {"in", "out"})
        for (Json& name : one[side]) rename(name);
      ops.push_back(one);
    }
  }
  Json out{{"repeat", m.layers / static_cast<int>(round.size())},
           {"index", "i"},
           {"carry", Json::array({Json::array({"x", "y"})})},
           {"params", params},
           {"ops", ops}};
  if (round.size() > 1) out["layers"] = sizes;
  return out;
}

// What follows attention in a layer: from n2 to c.
struct FeedForward {
  std::vector<Json> params;
  std::vector<Json> ops;
};

constexpr const char* kLayer = "model.layers.{i}.";

FeedForward swiglu_feed_forward(const TinyModel& m) {
  const std::string l = kLayer;
  const Json h = dim("hidden", m.width), f = dim("ffn", m.ffn);
  return {{param(l + "mlp.gate_proj.weight", {f, h}), param(l + "mlp.up_proj.weight", {f, h}),
           param(l + "mlp.down_proj.weight", {h, f})},
          {op("linear", {"n2", l + "mlp.gate_proj.weight"}, {"ga"}),
           op("linear", {"n2", l + "mlp.up_proj.weight"}, {"up"}), op("swiglu", {"ga", "up"}, {"a"}),
           op("linear", {"a", l + "mlp.down_proj.weight"}, {"c"})}};
}

FeedForward expert_feed_forward(const TinyModel& m) {
  const std::string l = kLayer;
  const Json h = dim("hidden", m.width), f = dim("ffn", m.ffn), e = dim("expert", m.experts);
  return {
      {param(l + "mlp.router.weight", {e, h}), param(l + "mlp.experts.gate_proj.weight", {e, f, h}),
       param(l + "mlp.experts.up_proj.weight", {e, f, h}),
       param(l + "mlp.experts.down_proj.weight", {e, h, f})},
      {op("linear", {"n2", l + "mlp.router.weight"}, {"rl"}),
       op("route_topk", {"rl", "samples"}, {"rg", "re", "rs"},
          {{"k", m.choices}, {"group", m.routed}, {"capacity", m.slots}, {"renormalise", 1}, {"aux", 0.05}}),
       op("dispatch", {"n2", "re", "rs"}, {"d"},
          {{"group", m.routed}, {"experts", m.experts}, {"capacity", m.slots}}),
       op("grouped_linear", {"d", l + "mlp.experts.gate_proj.weight"}, {"ga"}),
       op("grouped_linear", {"d", l + "mlp.experts.up_proj.weight"}, {"up"}),
       op("swiglu", {"ga", "up"}, {"a"}),
       op("grouped_linear", {"a", l + "mlp.experts.down_proj.weight"}, {"ex"}),
       op("combine", {"ex", "rg", "re", "rs"}, {"c"}, {{"group", m.routed}})}};
}

Layer decoder_layer(const TinyModel& m, const FeedForward& feed_forward) {
  const Json h = dim("hidden", m.width), g = dim("group", m.groups), r = dim("rep", m.reps),
             d = dim("head", m.head);
  const std::string l = kLayer;
  std::vector<Json> block_params{param(l + "input_layernorm.weight", {h}, "ones"),
                                 param(l + "self_attn.q_proj.weight", {g, r, d, h}),
                                 param(l + "self_attn.k_proj.weight", {g, d, h}),
                                 param(l + "self_attn.v_proj.weight", {g, d, h}),
                                 param(l + "self_attn.o_proj.weight", {h, g, r, d}),
                                 param(l + "post_attention_layernorm.weight", {h}, "ones")};
  block_params.insert(block_params.end(), feed_forward.params.begin(), feed_forward.params.end());
  const Json rope{{"theta", 10000.0}, {"inverse", 0}};
  Json ops = Json::array();
  ops.push_back(op("rmsnorm", {"x", l + "input_layernorm.weight"}, {"n1", "s1"}, {{"eps", 1e-5}}));
  ops.push_back(op("linear", {"n1", l + "self_attn.q_proj.weight"}, {"q0"}));
  ops.push_back(op("linear", {"n1", l + "self_attn.k_proj.weight"}, {"k0"}));
  ops.push_back(op("linear", {"n1", l + "self_attn.v_proj.weight"}, {"v"}));
  ops.push_back(op("rope", {"q0", "positions"}, {"q"}, rope));
  ops.push_back(op("rope", {"k0", "positions"}, {"k"}, rope));
  ops.push_back(op("attention", {"q", "k", "v", "positions", "positions"}, {"o", "lse"}, {{"scale", 0.35}}));
  ops.push_back(op("linear", {"o", l + "self_attn.o_proj.weight"}, {"p"}));
  ops.push_back(op("add", {"x", "p"}, {"x1"}));
  ops.push_back(op("rmsnorm", {"x1", l + "post_attention_layernorm.weight"}, {"n2", "s2"}, {{"eps", 1e-5}}));
  for (const Json& part : feed_forward.ops) ops.push_back(part);
  ops.push_back(op("add", {"x1", "c"}, {"y"}));
  return {block_params, ops};
}

// A Llama-like decoder.
Json decoder_model(const std::string& name, const TinyModel& m, const std::vector<Layer>& round) {
  const Json h = dim("hidden", m.width);
  std::vector<Json> params{param("model.embed_tokens.weight", {dim("vocab", m.vocab), h}),
                           param("model.norm.weight", {h}, "ones")};
  if (!m.tied) params.push_back(param("lm_head.weight", {dim("vocab", m.vocab), h}));
  Json model_ops = Json::array();
  model_ops.push_back(op("embedding", {"tokens", "model.embed_tokens.weight"}, {"x"}));
  model_ops.push_back(layers(m, round));
  model_ops.push_back(op("rmsnorm", {"x", "model.norm.weight"}, {"f", "fs"}, {{"eps", 1e-5}}));
  model_ops.push_back(
      op("linear", {"f", m.tied ? "model.embed_tokens.weight" : "lm_head.weight"}, {"logits"}));
  return {{"name", name}, {"params", params}, {"ops", model_ops}, {"logits", "logits"}};
}

}  // namespace

Json gpt2_model(const TinyModel& m) {
  const Json h = dim("hidden", m.width), f = dim("ffn", m.ffn), g = dim("group", m.groups),
             r = dim("rep", m.reps), d = dim("head", m.head);
  std::vector<Json> block_params{
      param("h.{i}.ln_1.weight", {h}, "ones"),         param("h.{i}.ln_1.bias", {h}, "zeros"),
      param("h.{i}.attn.q.weight", {g, r, d, h}),      param("h.{i}.attn.q.bias", {g, r, d}),
      param("h.{i}.attn.k.weight", {g, d, h}),         param("h.{i}.attn.k.bias", {g, d}),
      param("h.{i}.attn.v.weight", {g, d, h}),         param("h.{i}.attn.v.bias", {g, d}),
      param("h.{i}.attn.c_proj.weight", {h, g, r, d}), param("h.{i}.attn.c_proj.bias", {h}),
      param("h.{i}.ln_2.weight", {h}, "ones"),         param("h.{i}.ln_2.bias", {h}, "zeros"),
      param("h.{i}.mlp.c_fc.weight", {f, h}),          param("h.{i}.mlp.c_fc.bias", {f}),
      param("h.{i}.mlp.c_proj.weight", {h, f}),        param("h.{i}.mlp.c_proj.bias", {h})};
  const auto linear_bias = [](Json& ops, const std::string& in, const std::string& name,
                              const std::string& out) {
    ops.push_back(op("linear", {in, name + ".weight"}, {out + "0"}));
    ops.push_back(op("bias_add", {out + "0", name + ".bias"}, {out}));
  };
  Json ops = Json::array();
  ops.push_back(
      op("layernorm", {"x", "h.{i}.ln_1.weight", "h.{i}.ln_1.bias"}, {"n1", "m1", "s1"}, {{"eps", 1e-5}}));
  linear_bias(ops, "n1", "h.{i}.attn.q", "q");
  linear_bias(ops, "n1", "h.{i}.attn.k", "k");
  linear_bias(ops, "n1", "h.{i}.attn.v", "v");
  ops.push_back(op("attention", {"q", "k", "v", "positions", "positions"}, {"o", "lse"}, {{"scale", 0.35}}));
  linear_bias(ops, "o", "h.{i}.attn.c_proj", "p");
  std::string attended = "p";
  if (m.dropout > 0) {
    ops.push_back(
        op("dropout", {"p", "samples", "positions", "step"}, {"pd"}, {{"p", m.dropout}, {"key", 65536}}));
    attended = "pd";
  }
  ops.push_back(op("add", {"x", attended}, {"x1"}));
  ops.push_back(
      op("layernorm", {"x1", "h.{i}.ln_2.weight", "h.{i}.ln_2.bias"}, {"n2", "m2", "s2"}, {{"eps", 1e-5}}));
  linear_bias(ops, "n2", "h.{i}.mlp.c_fc", "u");
  ops.push_back(op("gelu", {"u"}, {"a"}));
  linear_bias(ops, "a", "h.{i}.mlp.c_proj", "c");
  ops.push_back(op("add", {"x1", "c"}, {"y"}));
  std::vector<Json> params{param("wte.weight", {dim("vocab", m.vocab), h}),
                           param("wpe.weight", {dim("position", m.context), h}),
                           param("ln_f.weight", {h}, "ones"), param("ln_f.bias", {h}, "zeros")};
  if (!m.tied) params.push_back(param("lm_head.weight", {dim("vocab", m.vocab), h}));
  Json model_ops = Json::array();
  model_ops.push_back(op("embedding", {"tokens", "wte.weight"}, {"te"}));
  model_ops.push_back(op("embedding", {"positions", "wpe.weight"}, {"pe"}));
  model_ops.push_back(op("add", {"te", "pe"}, {"x"}));
  model_ops.push_back(layers(m, std::vector<Layer>(static_cast<size_t>(m.round), {block_params, ops})));
  model_ops.push_back(op("layernorm", {"x", "ln_f.weight", "ln_f.bias"}, {"f", "fm", "fs"}, {{"eps", 1e-5}}));
  model_ops.push_back(op("linear", {"f", m.tied ? "wte.weight" : "lm_head.weight"}, {"logits"}));
  return {{"name", "gpt2"}, {"params", params}, {"ops", model_ops}, {"logits", "logits"}};
}

Json llama_model(const TinyModel& m) {
  const Layer layer = decoder_layer(m, swiglu_feed_forward(m));
  return decoder_model("llama", m, std::vector<Layer>(static_cast<size_t>(m.round), layer));
}

Json moe_model(const TinyModel& m) {
  std::vector<Layer> round(static_cast<size_t>(m.round), decoder_layer(m, expert_feed_forward(m)));
  if (m.round > 1) round[0] = decoder_layer(m, swiglu_feed_forward(m));
  return decoder_model("moe", m, round);
}

Json tiny_recipe(const Json& model, const std::string& file, int context) {
  return {{"tenon", 1},
          {"name", "tiny"},
          {"seed", 7},
          {"precision", "f32"},
          {"numerics", {{"mode", "fast"}, {"shards", 8}}},
          {"steps", 4},
          {"batch", 8},
          {"microbatches", 1},
          {"context", context},
          {"model", model},
          {"data", {{"plugin", "data/text"}, {"options", {{"files", Json::array({file})}}}, {"valid", 0.1}}},
          {"optimizer",
           {{"plugin", "optimizer/adamw"},
            {"options", {{"weight_decay", 0.1}}},
            {"clip", 1.0},
            {"groups", Json::array({{{"match", Json::array({"*.bias", "*ln_*", "*norm*"})},
                                     {"options", {{"weight_decay", 0.0}}}}})}}},
          {"lr", {{"kind", "cosine"}, {"peak", 0.01}, {"floor", 0.001}, {"warmup", 2}, {"steps", 10}}},
          {"mesh", Json::array({Json::array({"dp", 0})})},
          {"strategies", Json::array({{{"plugin", "parallel/data"}, {"options", Json::object()}}})},
          {"kernels", {{"plugin", "kernels/reference"}, {"options", Json::object()}}},
          {"comm", {{"plugin", "comm/local"}, {"options", Json::object()}}},
          {"eval", {{"every", 0}, {"batches", 1}}},
          {"save", {{"every", 0}, {"keep", 2}}},
          {"log", {{"every", 1}, {"sinks", Json::array()}}}};
}

}  // namespace tenon::test
