// One case or more for each op kind with a sharding rule: ranks, sizes, attributes and fitting random inputs.
// Every size is divisible by 4, so that both axes of a 2x2 mesh may shard any dim.
#pragma once

#include <string>
#include <vector>

#include "graph/ops.h"
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

inline std::vector<OpCase> op_cases() {
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
      {"embedding", "embedding", {2, 2}, {}},
      {"embedding_wgrad", "embedding_wgrad", {3, 2}, {{"rows", int64_t{8}}}},
      {"layernorm", "layernorm", {3, 1, 1}, eps},
      {"layernorm_dgrad", "layernorm_dgrad", {3, 3, 1, 2, 2}, {}},
      {"layernorm_wgrad", "layernorm_wgrad", {3, 3, 2, 2}, {}},
      {"rmsnorm", "rmsnorm", {3, 1}, eps},
      {"rmsnorm_dgrad", "rmsnorm_dgrad", {3, 3, 1, 2}, {}},
      {"rmsnorm_wgrad", "rmsnorm_wgrad", {3, 3, 2}, {}},
      {"linear", "linear", {3, 2}, {}},
      {"linear_into_heads", "linear", {3, 3}, {}},
      {"linear_from_heads", "linear", {4, 3}, {}},
      {"linear_dgrad", "linear_dgrad", {3, 2}, {}},
      {"linear_dgrad_from_heads", "linear_dgrad", {4, 3}, {}},
      {"linear_wgrad", "linear_wgrad", {3, 3}, {}},
      {"linear_wgrad_heads", "linear_wgrad", {4, 3}, {}},
      {"bias_add", "bias_add", {3, 1}, {}},
      {"bias_add_heads", "bias_add", {4, 2}, {}},
      {"bias_wgrad", "bias_wgrad", {3}, {}},
      {"bias_wgrad_heads", "bias_wgrad", {4}, {}},
      {"rope", "rope", {4, 2}, rope},
      {"rope_inverse_groups", "rope", {5, 2}, back},
      {"attention", "attention", {5, 4, 4, 2, 2}, scale},
      {"attention_dgrad", "attention_dgrad", {5, 5, 4, 4, 5, 4, 2, 2}, scale},
      {"gelu", "gelu", {3}, {}},
      {"gelu_dgrad", "gelu_dgrad", {3, 3}, {}},
      {"swiglu", "swiglu", {3, 3}, {}},
      {"swiglu_dgrad", "swiglu_dgrad", {3, 3, 3}, {}},
      {"gelu_experts", "gelu", {5}, {}},
      {"swiglu_experts", "swiglu", {5, 5}, {}},
      {"route_topk", "route_topk", {3}, route},
      {"route_topk_dgrad", "route_topk_dgrad", {3, 3, 3}, routed},
      {"dispatch", "dispatch", {3, 3, 3}, slots},
      {"dispatch_dgrad", "dispatch_dgrad", {5, 3, 3}, group},
      {"combine", "combine", {5, 3, 3, 3}, group},
      {"combine_dgrad", "combine_dgrad", {3, 5, 3, 3, 3}, group},
      {"grouped_linear", "grouped_linear", {5, 3}, {}},
      {"grouped_linear_from_heads", "grouped_linear", {6, 4}, {}},
      {"grouped_linear_dgrad", "grouped_linear_dgrad", {5, 3}, {}},
      {"grouped_linear_wgrad", "grouped_linear_wgrad", {5, 5}, {}},
      {"dropout", "dropout", {3, 1, 2, 0}, drop},
      {"dropout_heads", "dropout", {4, 1, 2, 0}, drop},
      {"cross_entropy", "cross_entropy", {3, 2}, {}},
      {"cross_entropy_dgrad", "cross_entropy_dgrad", {3, 2, 2}, {}},
      {"add", "add", {3, 3}, {}},
      {"add_scalar", "add", {0, 0}, {}},
      {"add_integers", "add", {2, 2}, {}, Dtype::i64},
      {"sqnorm", "sqnorm", {3}, {}},
      {"sqnorm_vector", "sqnorm", {1}, {}},
      {"clip_scale", "clip_scale", {0, 0, 0}, {{"clip", 0.5}}},
  };
}

// Kinds that no kernel runs: they move data, go to the optimizer, or become several instructions that
// exchange blocks, which whole programs judge (tests/equivalence/run).
inline bool has_kernel_case(const OpDef& def) {
  const std::string_view kind = def.kind;
  return collective_of(def) == Collective::none && kind != "update" && !kind.starts_with("attention_ring");
}

inline int64_t factor_size(const std::string& name) {
  return name == "t" || name == "h" || name == "v" || name.ends_with('1') ? 8 : 4;
}

// Routed sequences have 8 tokens, so that a quarter of one is still a group of 2, and two choices for each.
inline std::vector<int64_t> input_dims(const OpCase& c, const Rule& rule, size_t i) {
  std::vector<int64_t> dims;
  for (int f : rule.inputs[i]) dims.push_back(factor_size(rule.factors[f].name));
  const int64_t group = attr_int(c.attrs, "group");
  if (group == 0) return dims;
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
  return def.variadic ? i - std::min(i, count - def.input_names.size()) : i;
}

inline Tensor random_input(const OpDef& def, const OpCase& c, const Rule& rule, size_t i, Random& random) {
  const size_t k = declared_input(def, i, c.ranks.size());
  const std::string name = def.input_names[k];
  const std::vector<int64_t> dims = input_dims(c, rule, i);
  const char type = def.input_types[k];
  if (type == 'i') {
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
  const Dtype dtype = type == 'l' ? Dtype::i64 : type == 'a' ? c.any : Dtype::f64;
  if (dtype == Dtype::f64) return random_real(random, dims, dtype, name.starts_with("sq") ? 0.5 : -2, 2);
  Tensor out(dtype, dims);
  for (int64_t j = 0; j < out.size(); ++j) out.set(j, static_cast<double>(1 + below(random, 1000)));
  return out;
}

}  // namespace tenon::test
