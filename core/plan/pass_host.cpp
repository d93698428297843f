#include "plan/pass_host.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "graph/ops.h"

namespace tenon {
namespace {

// What a pass said about a value and an axis: the dim that it shards, or none (replicated).
struct Statement {
  std::optional<uint32_t> dim;
  std::string pass;
};
using Statements = std::map<std::pair<ValueId, AxisId>, Statement>;

}  // namespace
}  // namespace tenon

// The handle that passes see. Ids are one above the graph's own, because 0 means none there.
struct tenon_graph {
  tenon::Graph* graph;
  const tenon::Mesh* mesh;
  std::string pass;
  tenon::Statements* statements;  // of all passes so far
  std::vector<uint32_t> ids;      // backs the last array returned
  std::vector<int64_t> dims;
  std::vector<const char*> dim_names;
};

namespace tenon {
namespace {

// Only the message: code, place and fix are added where the pass is known (run_passes).
tenon_code refuse(tenon_error* error, tenon_code code, const std::string& message) {
  if (error == nullptr) return code;
  *error = empty_abi_error();
  error->code = code;
  error->message[message.copy(error->message, sizeof error->message - 1)] = '\0';
  return code;
}

uint32_t hand_out(tenon_graph* g, const std::vector<uint32_t>& ids, const uint32_t** out) {
  g->ids.clear();
  for (uint32_t id : ids) g->ids.push_back(id + 1);
  *out = g->ids.data();
  return static_cast<uint32_t>(g->ids.size());
}

std::vector<uint32_t> first(size_t n) {
  std::vector<uint32_t> out(n);
  for (uint32_t i = 0; i < n; ++i) out[i] = i;
  return out;
}

uint32_t ops(tenon_graph* g, const tenon_op_id** out) {
  return hand_out(g, first(g->graph->ops().size()), out);
}
uint32_t values(tenon_graph* g, const tenon_value_id** out) {
  return hand_out(g, first(g->graph->values().size()), out);
}
const char* op_kind(tenon_graph* g, tenon_op_id op) {
  return op == 0 || op > g->graph->ops().size() ? "" : g->graph->op(op - 1).def->kind;
}
uint32_t op_inputs(tenon_graph* g, tenon_op_id op, const tenon_value_id** out) {
  return op == 0 || op > g->graph->ops().size() ? 0 : hand_out(g, g->graph->op(op - 1).in, out);
}
uint32_t op_outputs(tenon_graph* g, tenon_op_id op, const tenon_value_id** out) {
  return op == 0 || op > g->graph->ops().size() ? 0 : hand_out(g, g->graph->op(op - 1).out, out);
}

tenon_code value_info(tenon_graph* g, tenon_value_id id, tenon_value_info* out, tenon_error* error) {
  if (id == 0 || id > g->graph->values().size()) return refuse(error, TENON_E_ARGUMENT, "no such value");
  const Value& value = g->graph->value(id - 1);
  g->dims.clear();
  g->dim_names.clear();
  for (const Dim& dim : value.dims) {
    g->dims.push_back(dim.size);
    g->dim_names.push_back(dim.name.c_str());
  }
  out->struct_size = sizeof *out;
  out->role = static_cast<uint32_t>(value.role);
  out->name = value.name.c_str();
  out->dtype = static_cast<uint32_t>(value.dtype);
  out->ndim = static_cast<uint32_t>(value.dims.size());
  out->dims = g->dims.data();
  out->dim_names = g->dim_names.data();
  out->layer = value.layer;
  out->producer = value.producer == kNone ? 0 : value.producer + 1;
  return TENON_OK;
}

int64_t axis_size(tenon_graph* g, const char* axis) {
  const auto id = g->mesh->find(axis);
  return id ? g->mesh->axes[*id].size : 0;
}

std::string wish(const Value& value, std::optional<uint32_t> dim) {
  return dim ? "sharded by " + value.dims[*dim].name : "replicated";
}

tenon_code pin(tenon_graph* g, tenon_value_id id, std::optional<uint32_t> dim, const char* axis,
               tenon_error* error) {
  if (id == 0 || id > g->graph->values().size()) return refuse(error, TENON_E_ARGUMENT, "no such value");
  Value& value = g->graph->value(id - 1);
  const auto axis_id = g->mesh->find(axis);
  if (!axis_id) return refuse(error, TENON_E_ARGUMENT, std::string("the mesh has no axis '") + axis + "'");
  if (dim && *dim >= value.dims.size()) {
    return refuse(error, TENON_E_ARGUMENT, "'" + value.name + "' has no dim " + std::to_string(*dim));
  }
  const auto [said, fresh] = g->statements->try_emplace({id - 1, *axis_id}, Statement{dim, g->pass});
  if (!fresh && said->second.dim != dim) {
    return refuse(error, TENON_E_ARGUMENT,
                  "wants '" + value.name + "' " + wish(value, dim) + " over " + axis + ", but " +
                      said->second.pass + " has it " + wish(value, said->second.dim));
  }
  if (!value.pinned) value.pinned = Placement::replicated(value.dims.size());
  // An axis of one rank shards nothing: leaving it out spares a collective of one.
  if (fresh && dim && g->mesh->axes[*axis_id].size > 1) value.pinned->dims[*dim].push_back(*axis_id);
  value.pinned_by.push_back(g->pass);
  return TENON_OK;
}

tenon_code shard(tenon_graph* g, tenon_value_id id, uint32_t dim, const char* axis, tenon_error* error) {
  return pin(g, id, dim, axis, error);
}
tenon_code replicate(tenon_graph* g, tenon_value_id id, const char* axis, tenon_error* error) {
  return pin(g, id, std::nullopt, axis, error);
}

constexpr tenon_graph_api kApi{sizeof(tenon_graph_api),
                               0,
                               ops,
                               op_kind,
                               op_inputs,
                               op_outputs,
                               values,
                               value_info,
                               axis_size,
                               shard,
                               replicate};

std::set<std::string> words(const char* text) {
  std::set<std::string> out;
  std::stringstream stream(text == nullptr ? "" : text);
  std::string word;
  while (stream >> word) out.insert(word);
  return out;
}

Status check_contracts(const std::vector<PassUse>& passes) {
  std::map<std::string, std::string> provided;
  for (const PassUse& pass : passes) {
    for (const std::string& word : words(pass.table->provides)) provided.emplace(word, pass.id);
  }
  for (const PassUse& pass : passes) {
    for (const std::string& word : words(pass.table->needs)) {
      if (!provided.contains(word)) {
        return Error{"P004", pass.id + " needs '" + word + "', which no strategy of the recipe provides",
                     "/strategies", "add a strategy that provides it", TENON_E_RECIPE};
      }
    }
    for (const std::string& word : words(pass.table->conflicts)) {
      const auto it = provided.find(word);
      if (it != provided.end() && it->second != pass.id) {
        return Error{"P004", pass.id + " conflicts with '" + word + "' of " + it->second, "/strategies",
                     "remove one of the two", TENON_E_RECIPE};
      }
    }
  }
  return {};
}

}  // namespace

Status run_passes(const std::vector<PassUse>& passes, uint32_t phase, Graph& graph, const Mesh& mesh) {
  TENON_CHECK(check_contracts(passes));
  Statements statements;
  for (const PassUse& pass : passes) {
    if (pass.table->phase != phase) continue;
    tenon_graph handle{&graph, &mesh, pass.id, &statements, {}, {}, {}};
    const tenon_pass_config config{sizeof(tenon_pass_config), static_cast<uint32_t>(pass.options.size()),
                                   pass.options.data(), &kApi};
    tenon_error error = empty_abi_error();
    const tenon_code code = pass.table->run(&config, &handle, &error);
    if (code < 0) {
      Error out = from_abi(code, error, "/strategies");
      out.code = "P003";
      out.cause = pass.id + ": " + out.cause;
      return out;
    }
  }
  return {};
}

}  // namespace tenon
