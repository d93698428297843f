// A graph for tests of passes, without the core: what it lends out dies at every annotation, as the interface
// allows, and what a pass says is written down.
#pragma once

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tenon/draft/pass.h"

struct tenon_graph {
  struct Value {
    uint32_t role;
    std::string name;
    std::vector<std::string> dims;    // names; "": none
    std::vector<int64_t> sizes = {};  // of the dims; empty: 8 each
    int32_t layer = -1;
  };
  struct Op {
    std::string kind;
    std::vector<std::string> inputs;  // names of values
    std::vector<std::string> outputs = {};
    double flops = 0;
  };
  // Everything lent out; replaced, and the old memory overwritten, at each annotation.
  struct Loan {
    std::vector<tenon_value_id> ids, operands;
    std::vector<tenon_op_id> op_ids;
    std::vector<std::vector<const char*>> names;
    std::vector<std::vector<int64_t>> sizes;
    std::vector<Value> values;
    std::vector<Op> ops;
  };

  void lend() {
    if (loan != nullptr) {
      for (auto* ids : {&loan->ids, &loan->operands, &loan->op_ids})
        std::fill(ids->begin(), ids->end(), 0xdead);
      for (Value& value : loan->values) {
        for (std::string& dim : value.dims) std::fill(dim.begin(), dim.end(), '?');
      }
      for (Op& op : loan->ops) std::fill(op.kind.begin(), op.kind.end(), '?');
      retired.push_back(std::move(loan));
    }
    loan = std::make_unique<Loan>();
    loan->values = values;
    loan->ops = ops;
    for (const Value& value : loan->values) {
      loan->ids.push_back(static_cast<tenon_value_id>(kFirstValue + loan->ids.size()));
      std::vector<const char*>& names = loan->names.emplace_back();
      for (const std::string& dim : value.dims) names.push_back(dim.empty() ? nullptr : dim.c_str());
      loan->sizes.push_back(value.sizes.empty() ? std::vector<int64_t>(value.dims.size(), 8) : value.sizes);
    }
    for (size_t i = 0; i < ops.size(); ++i) loan->op_ids.push_back(static_cast<tenon_op_id>(kFirstOp + i));
  }
  tenon_value_id id_of(const std::string& name) const {
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i].name == name) return static_cast<tenon_value_id>(kFirstValue + i);
    }
    return 0;
  }

  static constexpr uint32_t kFirstValue = 10, kFirstOp = 100;
  std::map<std::string, int64_t> axes;
  std::map<std::string, std::vector<std::string>> atoms;  // of axes that are split
  std::vector<Value> values;
  std::vector<Op> ops;
  std::unique_ptr<Loan> loan;
  std::vector<std::unique_ptr<Loan>> retired;
  std::vector<std::tuple<std::string, uint32_t, std::string>> sharded;  // value, dim, axis
  std::vector<std::tuple<std::string, uint32_t, std::string>> stored;   // value, level, axis (within ...)
  std::vector<std::tuple<std::string, uint32_t, std::string>> staged;   // kind of the op, stage, axis
  std::vector<std::pair<std::string, std::string>> substituted;         // output of the op, new kind
  std::vector<std::pair<std::string, std::string>> replicated, late;    // value, axis
  std::vector<std::pair<std::string, int64_t>> split;                   // axis, outer
  std::string refuse;                                                   // the value whose sharding is refused
};

namespace tenon::test {

inline uint32_t list_values(tenon_graph* graph, const tenon_value_id** out) {
  *out = graph->loan->ids.data();
  return static_cast<uint32_t>(graph->loan->ids.size());
}

inline uint32_t list_ops(tenon_graph* graph, const tenon_op_id** out) {
  *out = graph->loan->op_ids.data();
  return static_cast<uint32_t>(graph->loan->op_ids.size());
}

inline const char* kind_of_op(tenon_graph* graph, tenon_op_id op) {
  const size_t i = op - tenon_graph::kFirstOp;
  return i < graph->loan->ops.size() ? graph->loan->ops[i].kind.c_str() : "";
}

inline uint32_t lend_operands(tenon_graph* graph, const std::vector<std::string>& names,
                              const tenon_value_id** out) {
  graph->loan->operands.clear();  // one array at a time, as in the core
  for (const std::string& name : names) graph->loan->operands.push_back(graph->id_of(name));
  *out = graph->loan->operands.data();
  return static_cast<uint32_t>(names.size());
}

inline uint32_t inputs_of_op(tenon_graph* graph, tenon_op_id op, const tenon_value_id** out) {
  const size_t i = op - tenon_graph::kFirstOp;
  return i < graph->ops.size() ? lend_operands(graph, graph->ops[i].inputs, out) : 0;
}

inline uint32_t outputs_of_op(tenon_graph* graph, tenon_op_id op, const tenon_value_id** out) {
  const size_t i = op - tenon_graph::kFirstOp;
  return i < graph->ops.size() ? lend_operands(graph, graph->ops[i].outputs, out) : 0;
}

inline double flops_of_op(tenon_graph* graph, tenon_op_id op) {
  return graph->ops.at(op - tenon_graph::kFirstOp).flops;
}

inline tenon_code describe_value(tenon_graph* graph, tenon_value_id id, tenon_value_info* out,
                                 tenon_error* error) {
  const size_t i = id - tenon_graph::kFirstValue;
  if (i >= graph->values.size()) {
    std::snprintf(error->message, sizeof error->message, "no value %u", id);
    return TENON_E_ARGUMENT;
  }
  const tenon_graph::Loan& loan = *graph->loan;
  const auto& value = loan.values[i];
  *out = {sizeof *out,
          value.role,
          value.name.c_str(),
          TENON_F32,
          static_cast<uint32_t>(value.dims.size()),
          loan.sizes[i].data(),
          loan.names[i].data(),
          value.layer,
          0};
  return TENON_OK;
}

inline int64_t axis_size(tenon_graph* graph, const char* axis) {
  const auto found = graph->axes.find(axis);
  return found == graph->axes.end() ? 0 : found->second;
}

inline tenon_code shard_value(tenon_graph* graph, tenon_value_id id, uint32_t dim, const char* axis,
                              tenon_error* error) {
  const std::string& name = graph->values.at(id - tenon_graph::kFirstValue).name;
  if (name == graph->refuse) {
    std::snprintf(error->message, sizeof error->message, "'%s' is not divisible by dp 2", name.c_str());
    return TENON_E_RECIPE;
  }
  graph->sharded.emplace_back(name, dim, axis);
  graph->lend();
  return TENON_OK;
}

inline tenon_code replicate_value(tenon_graph* graph, tenon_value_id id, const char* axis, tenon_error*) {
  graph->replicated.emplace_back(graph->values.at(id - tenon_graph::kFirstValue).name, axis);
  graph->lend();
  return TENON_OK;
}

inline tenon_code sum_value_late(tenon_graph* graph, tenon_value_id id, const char* axis, tenon_error*) {
  graph->late.emplace_back(graph->values.at(id - tenon_graph::kFirstValue).name, axis);
  graph->lend();
  return TENON_OK;
}

inline const char* atom_of_axis(tenon_graph* graph, const char* axis, uint32_t i) {
  const auto found = graph->atoms.find(axis);
  if (found == graph->atoms.end()) return i == 0 ? graph->axes.find(axis)->first.c_str() : nullptr;
  return i < found->second.size() ? found->second[i].c_str() : nullptr;
}

// An axis is split already, or needs no split.
inline tenon_code split_axis(tenon_graph* graph, const char* axis, int64_t outer, tenon_error* error) {
  if (graph->atoms.count(axis) > 0 || outer == 1 || outer == graph->axes.at(axis)) return TENON_OK;
  graph->split.emplace_back(axis, outer);
  std::snprintf(error->message, sizeof error->message, "split first");
  return TENON_E_STATE;
}

inline tenon_code store_value(tenon_graph* graph, tenon_value_id id, uint32_t level, const char* axis,
                              const char* within, tenon_error*) {
  const std::string where = within == nullptr ? axis : std::string(axis) + " within " + within;
  graph->stored.emplace_back(graph->values.at(id - tenon_graph::kFirstValue).name, level, where);
  graph->lend();
  return TENON_OK;
}

inline tenon_code stage_op(tenon_graph* graph, tenon_op_id op, uint32_t stage, const char* axis,
                           tenon_error*) {
  graph->staged.emplace_back(graph->ops.at(op - tenon_graph::kFirstOp).kind, stage, axis);
  graph->lend();
  return TENON_OK;
}

inline tenon_code substitute_op(tenon_graph* graph, tenon_op_id op, const char* kind, tenon_error*) {
  graph->substituted.emplace_back(graph->ops.at(op - tenon_graph::kFirstOp).outputs.at(0), kind);
  graph->lend();
  return TENON_OK;
}

// What no pass under test calls is not there.
inline constexpr tenon_graph_api kMockGraphApi = [] {
  tenon_graph_api api{};
  api.struct_size = sizeof api;
  api.ops = list_ops;
  api.op_kind = kind_of_op;
  api.op_inputs = inputs_of_op;
  api.op_outputs = outputs_of_op;
  api.values = list_values;
  api.value = describe_value;
  api.axis_size = axis_size;
  api.shard = shard_value;
  api.replicate = replicate_value;
  api.axis_atom = atom_of_axis;
  api.split_axis = split_axis;
  api.sum_late = sum_value_late;
  api.store = store_value;
  api.set_stage = stage_op;
  api.substitute = substitute_op;
  api.op_flops = flops_of_op;
  return api;
}();

using Sharded = std::vector<std::tuple<std::string, uint32_t, std::string>>;
using Stored = Sharded;
using Staged = Sharded;

}  // namespace tenon::test
