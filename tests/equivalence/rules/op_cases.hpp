// One case or more for each op kind with a sharding rule: ranks, sizes, attributes and fitting random inputs.
// Every size is divisible by 4, so that both axes of a 2x2 mesh may shard any dim.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "graph/infer.h"
#include "shards.hpp"

namespace tenon::test {

struct OpCase {
  std::string label;  // a C++ identifier
  std::string kind;
  std::vector<size_t> ranks;
  Attrs attrs;
  Dtype any = Dtype::f64;  // what "any dtype" is
};

inline std::ostream& operator<<(std::ostream& out, const OpCase& c) { return out << c.label; }

// Kinds that no kernel runs: they move data, go to the optimizer, or become several instructions that
// exchange blocks, which whole programs judge (tests/equivalence/run).
inline bool has_kernel_case(const OpDef& def) {
  return def.use == OpUse::graph && def.runner == OpRunner::kernel && reshard_of(def) == TransferKind::none;
}

// Operands of one dim for each letter; attributes are 1.5, or 1.
inline OpCase plain_case(const OpDef& def) {
  OpCase out{def.kind, def.kind, {}, {}};
  for (const OperandDef& operand : def.in) out.ranks.push_back(operand.dims.size());
  for (const AttrDef& attr : def.attr_defs)
    out.attrs[attr.name] = attr.integer ? Attr(int64_t{1}) : Attr(1.5);
  return out;
}

// Kinds with attributes of their own, and other ranks.
inline std::vector<OpCase> special_cases() {
  const Attrs eps{{"eps", 1e-5}}, scale{{"scale", 0.5}}, rope{{"theta", 100.0}, {"inverse", int64_t{0}}};
  const Attrs route{{"k", int64_t{2}},
                    {"group", int64_t{2}},
                    {"capacity", int64_t{1}},
                    {"renormalise", int64_t{1}},
                    {"aux", 0.5}};
  const Attrs routed{{"group", int64_t{2}}, {"renormalise", int64_t{1}}, {"aux", 0.5}};
  const Attrs group{{"group", int64_t{2}}};
  const Attrs slots{{"group", int64_t{2}}, {"experts", int64_t{4}}, {"capacity", int64_t{4}}};
  const Attrs back{{"theta", 100.0}, {"inverse", int64_t{1}}}, drop{{"p", 0.5}, {"key", int64_t{99}}};
  return {
      {"embedding_wgrad", "embedding_wgrad", {3, 2}, {{"rows", int64_t{8}}}},
      {"layernorm", "layernorm", {3, 1, 1}, eps},
      {"rmsnorm", "rmsnorm", {3, 1}, eps},
      {"linear_into_heads", "linear", {3, 3}, {}},
      {"linear_from_heads", "linear", {4, 3}, {}},
      {"linear_dgrad_from_heads", "linear_dgrad", {4, 3}, {}},
      {"linear_wgrad_heads", "linear_wgrad", {4, 3}, {}},
      {"bias_add_heads", "bias_add", {4, 2}, {}},
      {"bias_wgrad_heads", "bias_wgrad", {4}, {}},
      {"rope", "rope", {4, 2}, rope},
      {"rope_inverse_groups", "rope", {5, 2}, back},
      {"attention", "attention", {5, 4, 4, 2, 2}, scale},
      {"attention_dgrad", "attention_dgrad", {5, 5, 4, 4, 5, 4, 2, 2}, scale},
      {"gelu_experts", "gelu", {5}, {}},
      {"swiglu_experts", "swiglu", {5, 5}, {}},
      {"route_topk", "route_topk", {3, 1}, route},
      {"route_topk_dgrad", "route_topk_dgrad", {3, 3, 1, 3}, routed},
      {"dispatch", "dispatch", {3, 3, 3}, slots},
      {"dispatch_dgrad", "dispatch_dgrad", {5, 3, 3}, group},
      {"combine", "combine", {5, 3, 3, 3}, group},
      {"combine_dgrad", "combine_dgrad", {3, 5, 3, 3, 3}, group},
      {"grouped_linear_from_heads", "grouped_linear", {6, 4}, {}},
      {"dropout", "dropout", {3, 1, 2, 0}, drop},
      {"dropout_heads", "dropout", {4, 1, 2, 0}, drop},
      {"add", "add", {3, 3}, {}},
      {"add_scalar", "add", {0, 0}, {}},
      {"add_integers", "add", {2, 2}, {}, Dtype::i64},
      {"sqnorm", "sqnorm", {3}, {}},
      {"sqnorm_vector", "sqnorm", {1}, {}},
      {"clip_scale", "clip_scale", {0, 0, 0}, {{"clip", 0.5}}},
  };
}

// Those, and a plain one for each kind unless one has its name.
inline std::vector<OpCase> op_cases() {
  std::vector<OpCase> out = special_cases();
  for (const OpDef& def : op_table()) {
    if (has_kernel_case(def) && std::ranges::count(out, def.kind, &OpCase::label) == 0)
      out.push_back(plain_case(def));
  }
  return out;
}

inline int64_t factor_size(const std::string& name) {
  return name == "t" || name == "h" || name == "v" || name.ends_with('1') ? 8 : 4;
}

// Routed sequences have 8 tokens, so that a quarter of one is still a group of 2, and two choices for each.
inline std::vector<int64_t> input_dims(const OpCase& c, const Rule& rule, size_t i) {
  std::vector<int64_t> dims;
  for (int f : rule.inputs[i]) dims.push_back(factor_size(rule.factors[f].name));
  const int64_t group = attr_int(c.attrs, "group");
  if (group == 0 || dims.size() < 2) return dims;
  dims[1] = dims.size() == 5 ? 8 / group : 8;  // [b n e c h], else [b s ..]
  if (rule.factors[rule.inputs[i].back()].name == "k") dims.back() = 2;
  return dims;
}

// The choices of a token are different experts, and no two choices share a slot.
inline double random_choice(const std::string& name, int64_t i, int64_t choices, Random& random) {
  if (name == "expert") return static_cast<double>((i % choices + i / choices * 3) % 4);
  return below(random, 4) == 0 ? -1.0 : static_cast<double>(i / choices % 2 + 2 * below(random, 2));
}

// The declared type letter and name of input i, variadic ones expanded.
inline size_t declared_input(const OpDef& def, size_t i, size_t count) {
  return def.variadic ? i - std::min(i, count - def.in.size()) : i;
}

inline Tensor random_input(const OpDef& def, const OpCase& c, const Rule& rule, size_t i, Random& random) {
  const size_t k = declared_input(def, i, c.ranks.size());
  const std::string name = def.in[k].name;
  const std::vector<int64_t> dims = input_dims(c, rule, i);
  const OperandDef::Type type = def.in[k].type;
  if (type == OperandDef::Type::i32) {
    Tensor out(Dtype::i32, dims);
    for (int64_t j = 0; j < out.size(); ++j) {
      if (name == "expert" || name == "slot") {
        out.set(j, random_choice(name, j, dims.back(), random));
        continue;
      }
      const auto value = below(random, name == "targets" ? 9 : 8) - (name == "targets" ? 1 : 0);
      // Each query sees at least the first key.
      out.set(j, name == "kpos" && j % dims.back() == 0 ? 0.0 : static_cast<double>(value));
    }
    return out;
  }
  const Dtype dtype = type == OperandDef::Type::i64   ? Dtype::i64
                      : type == OperandDef::Type::any ? c.any
                                                      : Dtype::f64;
  if (dtype == Dtype::f64) return random_real(random, dims, dtype, name.starts_with("sq") ? 0.5 : -2, 2);
  Tensor out(dtype, dims);
  for (int64_t j = 0; j < out.size(); ++j) {
    const bool none = name == "sample" && below(random, 4) == 0;
    out.set(j, none ? -1 : static_cast<double>(1 + below(random, 1000)));
  }
  return out;
}

}  // namespace tenon::test
