// tenon_sdk/pass.hpp - writing a parallel strategy (tenon/draft/pass.h) as one function that annotates a
// graph. Header-only.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "tenon/draft/pass.h"
#include "tenon_sdk/plugin.hpp"

namespace tenon::sdk {

struct PassDim {
  std::string name;  // "batch", "seq", "hidden", "head" ...
  int64_t size = 0;
};

// A value of the graph, copied: it stays as it is while the graph is annotated.
struct PassValue {
  tenon_value_id id = 0;
  uint32_t role = TENON_ROLE_ACT;
  std::string name;
  std::vector<PassDim> dims;
  int32_t layer = -1;
  tenon_op_id producer = 0;  // 0: an input or a parameter

  // The dimension of that name, if there is one.
  std::optional<uint32_t> find(std::string_view dim) const {
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i].name == dim) return static_cast<uint32_t>(i);
    }
    return std::nullopt;
  }
};

// The graph that a pass annotates. What the host refuses is thrown as Failure, with the host's words.
class PassGraph {
 public:
  // Throws Failure where the host's table is smaller than this one: drafts must match.
  PassGraph(const tenon_graph_api* api, tenon_graph* graph)
      : api_(read(api, TENON_END(tenon_graph_api, sum_late))), graph_(graph) {}

  // In topological order.
  std::vector<tenon_op_id> ops() const {
    const tenon_op_id* borrowed = nullptr;
    const uint32_t n = api_.ops(graph_, &borrowed);
    return {borrowed, borrowed + n};
  }
  std::string kind(tenon_op_id op) const { return api_.op_kind(graph_, op); }
  std::vector<tenon_value_id> inputs(tenon_op_id op) const {
    const tenon_value_id* borrowed = nullptr;
    const uint32_t n = api_.op_inputs(graph_, op, &borrowed);
    return {borrowed, borrowed + n};
  }
  std::vector<tenon_value_id> outputs(tenon_op_id op) const {
    const tenon_value_id* borrowed = nullptr;
    const uint32_t n = api_.op_outputs(graph_, op, &borrowed);
    return {borrowed, borrowed + n};
  }
  // Floating-point operations of one call on whole operands.
  double flops(tenon_op_id op) const { return api_.op_flops(graph_, op); }

  PassValue value(tenon_value_id id) const {
    tenon_value_info info{};
    info.struct_size = sizeof info;
    check([&](tenon_error* error) { return api_.value(graph_, id, &info, error); });
    PassValue out{id, info.role, info.name, {}, info.layer, info.producer};
    for (uint32_t i = 0; i < info.ndim; ++i)
      out.dims.push_back({info.dim_names[i] != nullptr ? info.dim_names[i] : "", info.dims[i]});
    return out;
  }
  std::vector<PassValue> values(uint32_t role) const {
    const tenon_value_id* borrowed = nullptr;
    const uint32_t n = api_.values(graph_, &borrowed);
    std::vector<PassValue> out;
    for (tenon_value_id id : std::vector<tenon_value_id>(borrowed, borrowed + n)) {
      PassValue one = value(id);
      if (one.role == role) out.push_back(std::move(one));
    }
    return out;
  }

  // Throws Failure when the mesh has no such axis.
  int64_t axis_size(const std::string& axis) const {
    const int64_t size = api_.axis_size(graph_, axis.c_str());
    if (size > 0) return size;
    throw Failure(TENON_E_ARGUMENT,
                  "the mesh has no axis '" + axis + "': add it to mesh, or set axis to one of its");
  }

  // The names of an axis's atoms, major first, after it is split behind the first `outer` ranks.
  std::vector<std::string> atoms(const std::string& axis, int64_t outer) const {
    check([&](tenon_error* error) { return api_.split_axis(graph_, axis.c_str(), outer, error); });
    std::vector<std::string> out;
    for (uint32_t i = 0; const char* atom = api_.axis_atom(graph_, axis.c_str(), i); ++i)
      out.emplace_back(atom);
    return out;
  }

  void shard(tenon_value_id value, uint32_t dim, const std::string& axis) {
    check([&](tenon_error* error) { return api_.shard(graph_, value, dim, axis.c_str(), error); });
  }
  void replicate(tenon_value_id value, const std::string& axis) {
    check([&](tenon_error* error) { return api_.replicate(graph_, value, axis.c_str(), error); });
  }
  void sum_late(tenon_value_id value, const std::string& axis) {
    check([&](tenon_error* error) { return api_.sum_late(graph_, value, axis.c_str(), error); });
  }
  // `within`: empty for all of the axis.
  void store(tenon_value_id value, uint32_t level, const std::string& axis, const std::string& within = "") {
    check([&](tenon_error* error) {
      return api_.store(graph_, value, level, axis.c_str(), within.empty() ? nullptr : within.c_str(), error);
    });
  }
  void set_stage(tenon_op_id op, uint32_t stage, const std::string& axis) {
    check([&](tenon_error* error) { return api_.set_stage(graph_, op, stage, axis.c_str(), error); });
  }
  void substitute(tenon_op_id op, const std::string& kind) {
    check([&](tenon_error* error) { return api_.substitute(graph_, op, kind.c_str(), error); });
  }

 private:
  template <class Call>
  static void check(Call call) {
    tenon_error error{};
    error.struct_size = sizeof error;
    const tenon_code code = call(&error);
    if (code < 0) throw Failure(code, error.message);
  }

  const tenon_graph_api api_;
  tenon_graph* graph_;
};

using PassFunction = void(PassGraph&, const Options&);

// The table of a pass made from its function. The words are those of tenon_pass; each may be NULL.
template <PassFunction* kRun>
constexpr tenon_pass make_pass(uint32_t phase, const char* axes, const char* provides = nullptr,
                               const char* needs = nullptr, const char* conflicts = nullptr) {
  return {sizeof(tenon_pass),
          phase,
          axes,
          provides,
          needs,
          conflicts,
          [](const tenon_pass_config* given, tenon_graph* graph, tenon_error* error) noexcept {
            return guard(error, [&] {
              const auto config = read(given, TENON_END(tenon_pass_config, api));
              PassGraph view(config.api, graph);
              kRun(view, Options(config));
            });
          }};
}

}  // namespace tenon::sdk
