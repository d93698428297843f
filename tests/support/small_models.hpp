// Small whole models as resolved recipes in f64, and fitting data: mlp, gpt2 (tied embedding, dropout,
// biases, learned positions), llama (rope, rmsnorm, swiglu, three query heads per key head) and moe (top-2
// router, one slot for each expert and group, auxiliary loss).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "graph/model.h"
#include "graph_interpreter.hpp"

namespace tenon::test {

// A recipe around a model; all sizes of the models divide by 2, batch and hidden by 4.
inline Json recipe_document(const std::string& model) {
  Json document = Json::parse(R"({
    "tenon": 1, "name": "small", "seed": 7, "precision": "f64", "numerics": {"mode": "fast", "shards": 8},
    "steps": 3, "batch": 4, "microbatches": 1, "context": 4,
    "data": {"plugin": "data/text"}, "optimizer": {"plugin": "optimizer/sgd"},
    "lr": {"kind": "constant", "value": 0.1, "warmup": 0},
    "mesh": [["dp", 1]], "strategies": [], "kernels": {"plugin": "kernels/reference"},
    "comm": {"plugin": "comm/local"}, "eval": {"every": 0, "batches": 0}, "save": {"every": 0, "keep": 1},
    "log": {"every": 1, "sinks": []}
  })");
  document["model"] = Json::parse(model);
  return document;
}

inline constexpr const char* kMlpModel = R"({
  "name": "mlp",
  "params": [
    {"name": "wte.weight", "dims": [["vocab", 12], ["hidden", 8]], "init": {"kind": "normal", "std": 0.5}},
    {"name": "head.weight", "dims": [["vocab", 12], ["hidden", 8]], "init": {"kind": "normal", "std": 0.5}}
  ],
  "ops": [
    {"op": "embedding", "in": ["tokens", "wte.weight"], "out": ["x"]},
    {"repeat": 2, "index": "i", "carry": [["x", "y"]],
     "params": [
       {"name": "h.{i}.fc.weight", "dims": [["ffn", 16], ["hidden", 8]], "init": {"kind": "normal", "std": 0.5}},
       {"name": "h.{i}.fc.bias", "dims": [["ffn", 16]], "init": {"kind": "normal", "std": 0.5}},
       {"name": "h.{i}.proj.weight", "dims": [["hidden", 8], ["ffn", 16]], "init": {"kind": "normal", "std": 0.5}}
     ],
     "ops": [
       {"op": "linear", "in": ["x", "h.{i}.fc.weight"], "out": ["u"]},
       {"op": "bias_add", "in": ["u", "h.{i}.fc.bias"], "out": ["ub"]},
       {"op": "gelu", "in": ["ub"], "out": ["a"]},
       {"op": "linear", "in": ["a", "h.{i}.proj.weight"], "out": ["p"]},
       {"op": "add", "in": ["x", "p"], "out": ["y"]}
     ]},
    {"op": "linear", "in": ["x", "head.weight"], "out": ["logits"]}
  ],
  "logits": "logits"
})";

inline constexpr const char* kGpt2Model = R"({
  "name": "gpt2",
  "params": [
    {"name": "wte.weight", "dims": [["vocab", 12], ["hidden", 8]], "init": {"kind": "normal", "std": 0.5}},
    {"name": "wpe.weight", "dims": [["position", 8], ["hidden", 8]], "init": {"kind": "normal", "std": 0.5}},
    {"name": "ln_f.weight", "dims": [["hidden", 8]], "init": {"kind": "ones"}},
    {"name": "ln_f.bias", "dims": [["hidden", 8]], "init": {"kind": "zeros"}}
  ],
  "ops": [
    {"op": "embedding", "in": ["tokens", "wte.weight"], "out": ["te"]},
    {"op": "embedding", "in": ["positions", "wpe.weight"], "out": ["pe"]},
    {"op": "add", "in": ["te", "pe"], "out": ["e"]},
    {"op": "dropout", "in": ["e", "samples", "positions", "step"], "out": ["x"], "attrs": {"p": 0.2, "key": 0}},
    {"repeat": 2, "index": "i", "carry": [["x", "y"]],
     "params": [
       {"name": "h.{i}.ln_1.weight", "dims": [["hidden", 8]], "init": {"kind": "ones"}},
       {"name": "h.{i}.ln_1.bias", "dims": [["hidden", 8]], "init": {"kind": "zeros"}},
       {"name": "h.{i}.q.weight", "dims": [["group", 4], ["rep", 1], ["head", 2], ["hidden", 8]],
        "init": {"kind": "normal", "std": 0.5}},
       {"name": "h.{i}.q.bias", "dims": [["group", 4], ["rep", 1], ["head", 2]], "init": {"kind": "zeros"}},
       {"name": "h.{i}.k.weight", "dims": [["group", 4], ["head", 2], ["hidden", 8]],
        "init": {"kind": "normal", "std": 0.5}},
       {"name": "h.{i}.k.bias", "dims": [["group", 4], ["head", 2]], "init": {"kind": "zeros"}},
       {"name": "h.{i}.v.weight", "dims": [["group", 4], ["head", 2], ["hidden", 8]],
        "init": {"kind": "normal", "std": 0.5}},
       {"name": "h.{i}.v.bias", "dims": [["group", 4], ["head", 2]], "init": {"kind": "zeros"}},
       {"name": "h.{i}.o.weight", "dims": [["hidden", 8], ["group", 4], ["rep", 1], ["head", 2]],
        "init": {"kind": "normal", "std": 0.5}},
       {"name": "h.{i}.o.bias", "dims": [["hidden", 8]], "init": {"kind": "zeros"}},
       {"name": "h.{i}.ln_2.weight", "dims": [["hidden", 8]], "init": {"kind": "ones"}},
       {"name": "h.{i}.ln_2.bias", "dims": [["hidden", 8]], "init": {"kind": "zeros"}},
       {"name": "h.{i}.fc.weight", "dims": [["ffn", 16], ["hidden", 8]], "init": {"kind": "normal", "std": 0.5}},
       {"name": "h.{i}.fc.bias", "dims": [["ffn", 16]], "init": {"kind": "zeros"}},
       {"name": "h.{i}.proj.weight", "dims": [["hidden", 8], ["ffn", 16]], "init": {"kind": "normal", "std": 0.5}},
       {"name": "h.{i}.proj.bias", "dims": [["hidden", 8]], "init": {"kind": "zeros"}}
     ],
     "ops": [
       {"op": "layernorm", "in": ["x", "h.{i}.ln_1.weight", "h.{i}.ln_1.bias"], "out": ["n1"],
        "attrs": {"eps": 0.00001}},
       {"op": "linear", "in": ["n1", "h.{i}.q.weight"], "out": ["q0"]},
       {"op": "bias_add", "in": ["q0", "h.{i}.q.bias"], "out": ["q"]},
       {"op": "linear", "in": ["n1", "h.{i}.k.weight"], "out": ["k0"]},
       {"op": "bias_add", "in": ["k0", "h.{i}.k.bias"], "out": ["k"]},
       {"op": "linear", "in": ["n1", "h.{i}.v.weight"], "out": ["v0"]},
       {"op": "bias_add", "in": ["v0", "h.{i}.v.bias"], "out": ["v"]},
       {"op": "attention", "in": ["q", "k", "v", "positions", "positions"], "out": ["o"], "attrs": {"scale": 0.7}},
       {"op": "linear", "in": ["o", "h.{i}.o.weight"], "out": ["p0"]},
       {"op": "bias_add", "in": ["p0", "h.{i}.o.bias"], "out": ["p1"]},
       {"op": "dropout", "in": ["p1", "samples", "positions", "step"], "out": ["p"], "attrs": {"p": 0.2, "key": 1}},
       {"op": "add", "in": ["x", "p"], "out": ["x1"]},
       {"op": "layernorm", "in": ["x1", "h.{i}.ln_2.weight", "h.{i}.ln_2.bias"], "out": ["n2"],
        "attrs": {"eps": 0.00001}},
       {"op": "linear", "in": ["n2", "h.{i}.fc.weight"], "out": ["u0"]},
       {"op": "bias_add", "in": ["u0", "h.{i}.fc.bias"], "out": ["u"]},
       {"op": "gelu", "in": ["u"], "out": ["a"]},
       {"op": "linear", "in": ["a", "h.{i}.proj.weight"], "out": ["m0"]},
       {"op": "bias_add", "in": ["m0", "h.{i}.proj.bias"], "out": ["m1"]},
       {"op": "dropout", "in": ["m1", "samples", "positions", "step"], "out": ["m"], "attrs": {"p": 0.2, "key": 2}},
       {"op": "add", "in": ["x1", "m"], "out": ["y"]}
     ]},
    {"op": "layernorm", "in": ["x", "ln_f.weight", "ln_f.bias"], "out": ["f"], "attrs": {"eps": 0.00001}},
    {"op": "linear", "in": ["f", "wte.weight"], "out": ["logits"]}
  ],
  "logits": "logits"
})";

inline constexpr const char* kLlamaModel = R"({
  "name": "llama",
  "params": [
    {"name": "wte.weight", "dims": [["vocab", 12], ["hidden", 8]], "init": {"kind": "normal", "std": 0.5}},
    {"name": "norm.weight", "dims": [["hidden", 8]], "init": {"kind": "ones"}},
    {"name": "head.weight", "dims": [["vocab", 12], ["hidden", 8]], "init": {"kind": "normal", "std": 0.5}}
  ],
  "ops": [
    {"op": "embedding", "in": ["tokens", "wte.weight"], "out": ["x"]},
    {"repeat": 2, "index": "i", "carry": [["x", "y"]],
     "params": [
       {"name": "h.{i}.norm_1.weight", "dims": [["hidden", 8]], "init": {"kind": "ones"}},
       {"name": "h.{i}.q.weight", "dims": [["group", 2], ["rep", 3], ["head", 4], ["hidden", 8]],
        "init": {"kind": "normal", "std": 0.5}},
       {"name": "h.{i}.k.weight", "dims": [["group", 2], ["head", 4], ["hidden", 8]],
        "init": {"kind": "normal", "std": 0.5}},
       {"name": "h.{i}.v.weight", "dims": [["group", 2], ["head", 4], ["hidden", 8]],
        "init": {"kind": "normal", "std": 0.5}},
       {"name": "h.{i}.o.weight", "dims": [["hidden", 8], ["group", 2], ["rep", 3], ["head", 4]],
        "init": {"kind": "normal", "std": 0.5}},
       {"name": "h.{i}.norm_2.weight", "dims": [["hidden", 8]], "init": {"kind": "ones"}},
       {"name": "h.{i}.gate.weight", "dims": [["ffn", 12], ["hidden", 8]], "init": {"kind": "normal", "std": 0.5}},
       {"name": "h.{i}.up.weight", "dims": [["ffn", 12], ["hidden", 8]], "init": {"kind": "normal", "std": 0.5}},
       {"name": "h.{i}.down.weight", "dims": [["hidden", 8], ["ffn", 12]], "init": {"kind": "normal", "std": 0.5}}
     ],
     "ops": [
       {"op": "rmsnorm", "in": ["x", "h.{i}.norm_1.weight"], "out": ["n1"], "attrs": {"eps": 0.00001}},
       {"op": "linear", "in": ["n1", "h.{i}.q.weight"], "out": ["q0"]},
       {"op": "rope", "in": ["q0", "positions"], "out": ["q"], "attrs": {"theta": 100, "inverse": 0}},
       {"op": "linear", "in": ["n1", "h.{i}.k.weight"], "out": ["k0"]},
       {"op": "rope", "in": ["k0", "positions"], "out": ["k"], "attrs": {"theta": 100, "inverse": 0}},
       {"op": "linear", "in": ["n1", "h.{i}.v.weight"], "out": ["v"]},
       {"op": "attention", "in": ["q", "k", "v", "positions", "positions"], "out": ["o"], "attrs": {"scale": 0.5}},
       {"op": "linear", "in": ["o", "h.{i}.o.weight"], "out": ["p"]},
       {"op": "add", "in": ["x", "p"], "out": ["x1"]},
       {"op": "rmsnorm", "in": ["x1", "h.{i}.norm_2.weight"], "out": ["n2"], "attrs": {"eps": 0.00001}},
       {"op": "linear", "in": ["n2", "h.{i}.gate.weight"], "out": ["gate"]},
       {"op": "linear", "in": ["n2", "h.{i}.up.weight"], "out": ["up"]},
       {"op": "swiglu", "in": ["gate", "up"], "out": ["a"]},
       {"op": "linear", "in": ["a", "h.{i}.down.weight"], "out": ["m"]},
       {"op": "add", "in": ["x1", "m"], "out": ["y"]}
     ]},
    {"op": "rmsnorm", "in": ["x", "norm.weight"], "out": ["f"], "attrs": {"eps": 0.00001}},
    {"op": "linear", "in": ["f", "head.weight"], "out": ["z"]},
    {"op": "softcap", "in": ["z"], "out": ["logits"], "attrs": {"cap": 2.0}}
  ],
  "logits": "logits"
})";

inline constexpr const char* kMoeModel = R"({
  "name": "moe",
  "params": [
    {"name": "wte.weight", "dims": [["vocab", 12], ["hidden", 8]], "init": {"kind": "normal", "std": 0.5}},
    {"name": "head.weight", "dims": [["vocab", 12], ["hidden", 8]], "init": {"kind": "normal", "std": 0.5}}
  ],
  "ops": [
    {"op": "embedding", "in": ["tokens", "wte.weight"], "out": ["x"]},
    {"repeat": 2, "index": "i", "carry": [["x", "y"]],
     "params": [
       {"name": "h.{i}.router.weight", "dims": [["expert", 4], ["hidden", 8]], "init": {"kind": "normal", "std": 0.5}},
       {"name": "h.{i}.gate.weight", "dims": [["expert", 4], ["ffn", 12], ["hidden", 8]],
        "init": {"kind": "normal", "std": 0.5}},
       {"name": "h.{i}.up.weight", "dims": [["expert", 4], ["ffn", 12], ["hidden", 8]],
        "init": {"kind": "normal", "std": 0.5}},
       {"name": "h.{i}.down.weight", "dims": [["expert", 4], ["hidden", 8], ["ffn", 12]],
        "init": {"kind": "normal", "std": 0.5}}
     ],
     "ops": [
       {"op": "linear", "in": ["x", "h.{i}.router.weight"], "out": ["r"]},
       {"op": "route_topk", "in": ["r", "samples"], "out": ["g", "e", "s"],
        "attrs": {"k": 2, "group": 2, "capacity": 1, "renormalise": 1, "aux": 0.3}},
       {"op": "dispatch", "in": ["x", "e", "s"], "out": ["d"], "attrs": {"group": 2, "experts": 4, "capacity": 1}},
       {"op": "grouped_linear", "in": ["d", "h.{i}.gate.weight"], "out": ["gate"]},
       {"op": "grouped_linear", "in": ["d", "h.{i}.up.weight"], "out": ["up"]},
       {"op": "swiglu", "in": ["gate", "up"], "out": ["a"]},
       {"op": "grouped_linear", "in": ["a", "h.{i}.down.weight"], "out": ["o"]},
       {"op": "combine", "in": ["o", "g", "e", "s"], "out": ["m"], "attrs": {"group": 2}},
       {"op": "add", "in": ["x", "m"], "out": ["y"]}
     ]},
    {"op": "linear", "in": ["x", "head.weight"], "out": ["logits"]}
  ],
  "logits": "logits"
})";

inline const char* model_named(const std::string& name) {
  if (name == "mlp") return kMlpModel;
  if (name == "gpt2") return kGpt2Model;
  if (name == "llama") return kLlamaModel;
  if (name == "moe") return kMoeModel;
  throw std::logic_error("no model " + name);
}

// The forward graph with its loss for a batch of 4 samples of 4 tokens.
inline ForwardGraph small_forward(const std::string& name) {
  auto recipe = read_recipe(recipe_document(model_named(name)));
  if (!recipe.ok()) throw std::runtime_error(recipe.error().text());
  auto forward = build_forward(*recipe, 4, 4, true);
  if (!forward.ok()) throw std::runtime_error(forward.error().text());
  return std::move(*forward);
}

// Tokens, targets (a quarter is padding), positions, samples, step, and parameters around their init.
inline Leaves small_leaves(const ForwardGraph& forward, uint64_t seed) {
  Random random(seed);
  Leaves out;
  for (ValueId id = 0; id < forward.graph.values().size(); ++id) {
    const Value& value = forward.graph.value(id);
    if (value.producer != kNone) continue;
    Tensor tensor(value.dtype, sizes(value.dims));
    for (int64_t i = 0; i < tensor.size(); ++i) {
      double x = (value.init.kind == Init::Kind::ones ? 1 : 0) + uniform(random, -0.5, 0.5);
      if (id == forward.tokens) x = static_cast<double>(below(random, 12));
      if (id == forward.targets) x = below(random, 4) == 0 ? -1 : static_cast<double>(below(random, 12));
      if (id == forward.positions) x = static_cast<double>(i % 4);
      if (id == forward.samples) x = static_cast<double>(1000 + 17 * i);
      if (id == forward.step) x = 3;
      tensor.set(i, x);
    }
    out.emplace(id, std::move(tensor));
  }
  return out;
}

}  // namespace tenon::test
