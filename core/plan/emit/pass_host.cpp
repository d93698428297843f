#include "plan/emit/pass_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <set>
#include <sstream>
#include <tuple>
#include <type_traits>

#include "graph/infer.h"

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
  tenon::Statements* statements;     // of all passes so far
  std::string fix;                   // of what was refused last
  std::optional<tenon::Mesh> split;  // the mesh that it wants instead
  std::vector<uint32_t> ids;         // backs the last array returned
  std::vector<int64_t> dims;
  std::vector<const char*> dim_names;
};

namespace tenon {
namespace {

// Only the message: code, place and fix are added where the pass is known (run_passes).
tenon_code refuse(tenon_error* error, tenon_code code, std::string_view message) {
  tenon_error mine = empty_abi_error();
  mine.code = code;
  message.copy(mine.message, sizeof mine.message - 1);
  tenon_fill(error, &mine);
  return code;
}

// What a slot needs not to be NULL, by the names of its header.
struct Needed {
  const char* name;
  const void* pointer;
};

// TENON_OK, or a refusal that names the first that is NULL. An error alone may be.
tenon_code need(tenon_error* error, std::initializer_list<Needed> all) {
  for (const Needed& one : all) {
    if (one.pointer == nullptr)
      return refuse(error, TENON_E_ARGUMENT, std::string("'") + one.name + "' is NULL");
  }
  return TENON_OK;
}

bool has_op(const tenon_graph* g, tenon_op_id op) {
  return g != nullptr && op > 0 && op <= g->graph->ops().size();
}

uint32_t hand_out(tenon_graph* g, const std::vector<uint32_t>& ids, const uint32_t** out) {
  if (out == nullptr) return 0;
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
  return g == nullptr ? 0 : hand_out(g, first(g->graph->ops().size()), out);
}
uint32_t values(tenon_graph* g, const tenon_value_id** out) {
  return g == nullptr ? 0 : hand_out(g, first(g->graph->values().size()), out);
}
const char* op_kind(tenon_graph* g, tenon_op_id op) {
  return has_op(g, op) ? g->graph->op(op - 1).def->kind : "";
}
uint32_t op_inputs(tenon_graph* g, tenon_op_id op, const tenon_value_id** out) {
  return has_op(g, op) ? hand_out(g, g->graph->op(op - 1).in, out) : 0;
}
uint32_t op_outputs(tenon_graph* g, tenon_op_id op, const tenon_value_id** out) {
  return has_op(g, op) ? hand_out(g, g->graph->op(op - 1).out, out) : 0;
}

tenon_code value_info(tenon_graph* g, tenon_value_id id, tenon_value_info* out, tenon_error* error) {
  if (const tenon_code code = need(error, {{"graph", g}, {"out", out}}); code < 0) return code;
  if (id == 0 || id > g->graph->values().size()) return refuse(error, TENON_E_ARGUMENT, "no such value");
  const Value& value = g->graph->value(id - 1);
  g->dims.clear();
  g->dim_names.clear();
  for (const Dim& dim : value.dims) {
    g->dims.push_back(dim.size);
    g->dim_names.push_back(dim.name.c_str());
  }
  const tenon_value_info mine = {.struct_size = sizeof mine,
                                 .role = static_cast<uint32_t>(value.role),
                                 .name = value.name.c_str(),
                                 .dtype = static_cast<uint32_t>(value.dtype),
                                 .ndim = static_cast<uint32_t>(value.dims.size()),
                                 .dims = g->dims.data(),
                                 .dim_names = g->dim_names.data(),
                                 .layer = value.layer,
                                 .producer = value.producer == kNone ? 0 : value.producer + 1};
  tenon_fill(out, &mine);
  return TENON_OK;
}

int64_t axis_size(tenon_graph* g, const char* axis) {
  if (g == nullptr || axis == nullptr) return 0;
  const auto axes = g->mesh->find_all(axis);
  return axes.empty() ? 0 : g->mesh->size(axes);
}

std::string wish(const Value& value, std::optional<uint32_t> dim) {
  return dim ? "sharded by " + value.dims[*dim].name : "replicated";
}

// The axes that a pass means by a name; an error if there are none.
tenon_code axes_named(const tenon_graph* g, const char* name, std::vector<AxisId>& out, tenon_error* error) {
  out = g->mesh->find_all(name);
  if (!out.empty()) return TENON_OK;
  return refuse(error, TENON_E_ARGUMENT, std::string("the mesh has no axis '") + name + "'");
}

tenon_code pin(tenon_graph* g, tenon_value_id id, std::optional<uint32_t> dim, const char* name,
               tenon_error* error) {
  if (const tenon_code code = need(error, {{"graph", g}, {"axis", name}}); code < 0) return code;
  if (id == 0 || id > g->graph->values().size()) return refuse(error, TENON_E_ARGUMENT, "no such value");
  Value& value = g->graph->value(id - 1);
  std::vector<AxisId> axes;
  if (const tenon_code code = axes_named(g, name, axes, error); code < 0) return code;
  if (dim && *dim >= value.dims.size()) {
    return refuse(error, TENON_E_ARGUMENT, "'" + value.name + "' has no dim " + std::to_string(*dim));
  }
  for (AxisId axis : axes) {
    const auto [said, fresh] = g->statements->try_emplace({id - 1, axis}, Statement{dim, g->pass});
    if (!fresh && said->second.dim != dim) {
      g->fix = "let the two use different axes, or remove one of them";
      return refuse(error, TENON_E_ARGUMENT,
                    "wants '" + value.name + "' " + wish(value, dim) + " over " + g->mesh->axes[axis].name +
                        ", but " + said->second.pass + " has it " + wish(value, said->second.dim));
    }
    // An axis of one rank shards nothing: leaving it out spares a collective of one.
    if (fresh && g->mesh->axes[axis].size > 1) value.pins.push_back({axis, dim, g->pass});
  }
  return TENON_OK;
}

tenon_code shard(tenon_graph* g, tenon_value_id id, uint32_t dim, const char* axis, tenon_error* error) {
  return pin(g, id, dim, axis, error);
}
tenon_code replicate(tenon_graph* g, tenon_value_id id, const char* axis, tenon_error* error) {
  return pin(g, id, std::nullopt, axis, error);
}

constexpr uint32_t kMostStorageLevel = 3;  // parameters too, so that they are gathered

// The axes with a name that must be among others; none without a name.
tenon_code axes_within(tenon_graph* g, const char* name, const std::vector<AxisId>& all,
                       std::vector<AxisId>& out, tenon_error* error) {
  if (name == nullptr) return TENON_OK;
  if (const tenon_code code = axes_named(g, name, out, error); code < 0) return code;
  for (AxisId axis : out) {
    if (std::ranges::count(all, axis) > 0) continue;
    g->fix = "name a sub-axis of the one that is cut";
    return refuse(error, TENON_E_ARGUMENT,
                  "axis '" + g->mesh->axes[axis].name + "' is not part of the one that it would be within");
  }
  return TENON_OK;
}

tenon_code store(tenon_graph* g, tenon_value_id id, uint32_t level, const char* name, const char* near,
                 tenon_error* error) {
  if (const tenon_code code = need(error, {{"graph", g}, {"axis", name}}); code < 0) return code;
  if (id == 0 || id > g->graph->values().size()) return refuse(error, TENON_E_ARGUMENT, "no such value");
  Value& value = g->graph->value(id - 1);
  if (value.role != Role::param) {
    return refuse(error, TENON_E_ARGUMENT,
                  "'" + value.name + "' is no parameter: only those can rest in parts");
  }
  if (level > kMostStorageLevel)
    return refuse(error, TENON_E_ARGUMENT, "level " + std::to_string(level) + " of storage: 0 to 3 exist");
  if (near != nullptr && level < kMostStorageLevel) {
    g->fix = "let parameters rest in parts too (ZeRO: stage = 3), or leave 'within' out";
    return refuse(error, TENON_E_ARGUMENT,
                  "wants '" + value.name + "' gathered within '" + near +
                      "', but only parameters that rest in parts are gathered");
  }
  std::vector<AxisId> axes, within;
  if (const tenon_code code = axes_named(g, name, axes, error); code < 0) return code;
  if (const tenon_code code = axes_within(g, near, axes, within, error); code < 0) return code;
  std::erase_if(axes, [g](AxisId axis) { return g->mesh->axes[axis].size == 1; });
  const Storage wanted{static_cast<int>(level), axes, within, g->pass};
  if (!value.storage.by.empty() &&
      !(value.storage.level == wanted.level && value.storage.axes == wanted.axes &&
        value.storage.within == wanted.within)) {
    g->fix = "remove one of the two";
    return refuse(error, TENON_E_ARGUMENT,
                  "wants '" + value.name + "' to rest in parts another way than " + value.storage.by);
  }
  value.storage = wanted;
  return TENON_OK;
}

tenon_code set_stage(tenon_graph* g, tenon_op_id id, uint32_t stage, const char* name, tenon_error* error) {
  if (const tenon_code code = need(error, {{"graph", g}, {"axis", name}}); code < 0) return code;
  if (!has_op(g, id)) return refuse(error, TENON_E_ARGUMENT, "no such op");
  const auto axis = g->mesh->find(name);
  if (!axis) {
    return refuse(error, TENON_E_ARGUMENT,
                  std::string("stages need one axis of the mesh, and '") + name + "' is none");
  }
  if (g->graph->pipeline != kNone && g->graph->pipeline != *axis) {
    return refuse(error, TENON_E_ARGUMENT,
                  "the stages are spread over " + g->mesh->axes[g->graph->pipeline].name + " already");
  }
  if (stage >= g->graph->ops().size()) {
    return refuse(error, TENON_E_ARGUMENT,
                  fmt::format("stage {}, which none of {} ops can be on", stage, g->graph->ops().size()));
  }
  g->graph->pipeline = *axis;
  g->graph->pipeline_by = g->pass;
  g->graph->op(id - 1).stage = static_cast<int>(stage);
  return TENON_OK;
}

tenon_code substitute(tenon_graph* g, tenon_op_id id, const char* kind, tenon_error* error) {
  if (const tenon_code code = need(error, {{"graph", g}, {"kind", kind}}); code < 0) return code;
  if (!has_op(g, id)) return refuse(error, TENON_E_ARGUMENT, "no such op");
  Op& op = g->graph->op(id - 1);
  const OpDef* def = find_op(kind);
  if (def == nullptr) return refuse(error, TENON_E_ARGUMENT, std::string("no op kind '") + kind + "'");
  auto types = infer_outputs(*def, *g->graph, op.in, op.attrs);
  if (!types.ok()) return refuse(error, TENON_E_ARGUMENT, types.error().cause);
  bool same = types->size() == op.out.size();
  for (size_t k = 0; same && k < op.out.size(); ++k)
    same = (*types)[k].dims == g->graph->value(op.out[k]).dims;
  if (!same) {
    return refuse(error, TENON_E_ARGUMENT,
                  std::string(kind) + " has other results than " + op.def->kind + " and cannot stand for it");
  }
  g->graph->become(id - 1, *def);
  op.substituted_by = g->pass;
  return TENON_OK;
}

double op_flops(tenon_graph* g, tenon_op_id id) {
  return has_op(g, id) ? flops_of(*g->graph, g->graph->op(id - 1)) : 0;
}

const char* axis_atom(tenon_graph* g, const char* axis, uint32_t i) {
  if (g == nullptr || axis == nullptr) return nullptr;
  const auto atoms = g->mesh->find_all(axis);
  return i < atoms.size() ? g->mesh->axes[atoms[i]].name.c_str() : nullptr;
}

tenon_code split_axis(tenon_graph* g, const char* name, int64_t outer, tenon_error* error) {
  if (const tenon_code code = need(error, {{"graph", g}, {"axis", name}}); code < 0) return code;
  std::vector<AxisId> atoms;
  if (const tenon_code code = axes_named(g, name, atoms, error); code < 0) return code;
  const std::string what = fmt::format("axis '{}' split behind {} ranks", name, outer);
  std::string taken;
  const auto mesh = outer < 1 ? std::nullopt : g->mesh->split(name, outer, &taken);
  if (!taken.empty()) {
    g->fix = "give that axis another name";
    return refuse(
        error, TENON_E_ARGUMENT,
        fmt::format("{}: a part of it is to be called '{}', as another axis of the mesh is", what, taken));
  }
  if (!mesh) {
    g->fix = "choose sizes of its parts that multiply to that";
    return refuse(error, TENON_E_ARGUMENT, what + ", which its parts do not allow");
  }
  if (mesh->axes == g->mesh->axes) return TENON_OK;
  g->split = mesh;
  return refuse(error, TENON_E_STATE, what + ": the mesh has to be made so first");
}

tenon_code sum_late(tenon_graph* g, tenon_value_id id, const char* name, tenon_error* error) {
  if (const tenon_code code = need(error, {{"graph", g}, {"axis", name}}); code < 0) return code;
  if (id == 0 || id > g->graph->values().size()) return refuse(error, TENON_E_ARGUMENT, "no such value");
  std::vector<AxisId> axes;
  if (const tenon_code code = axes_named(g, name, axes, error); code < 0) return code;
  std::vector<AxisId>& late = g->graph->value(id - 1).late;
  for (AxisId axis : axes)
    if (std::ranges::count(late, axis) == 0) late.push_back(axis);
  return TENON_OK;
}

// The slot of the table that a function of this file stands in. No exception may leave it, for behind it are
// the plugin's frames: without memory it is refused, or where it answers with no code, the answer is none.
template <auto* kFunction>
struct Slot;
template <class R, class... A, R (*kFunction)(tenon_graph*, A...)>
struct Slot<kFunction> {
  static R call(tenon_graph* graph, A... arguments) noexcept try {
    return kFunction(graph, arguments...);
  } catch (const std::exception& e) {
    if constexpr (std::is_same_v<R, tenon_code>) {
      tenon_error* const error = std::get<sizeof...(A) - 1>(std::tuple(arguments...));
      return refuse(error, TENON_E_MEMORY, e.what());
    } else {
      return R{};
    }
  }
};

constexpr tenon_graph_api kApi{sizeof(tenon_graph_api), 0,
                               Slot<ops>::call,         Slot<op_kind>::call,
                               Slot<op_inputs>::call,   Slot<op_outputs>::call,
                               Slot<values>::call,      Slot<value_info>::call,
                               Slot<axis_size>::call,   Slot<shard>::call,
                               Slot<replicate>::call,   Slot<store>::call,
                               Slot<set_stage>::call,   Slot<substitute>::call,
                               Slot<op_flops>::call,    Slot<axis_atom>::call,
                               Slot<split_axis>::call,  Slot<sum_late>::call};

std::set<std::string> words(const char* text) {
  std::set<std::string> out;
  std::stringstream stream(text == nullptr ? "" : text);
  std::string word;
  while (stream >> word) out.insert(word);
  return out;
}

Status check_contracts(const std::vector<PassUse>& passes) {
  std::map<std::string, std::vector<std::string>> provided;  // by whom
  for (const PassUse& pass : passes) {
    for (const std::string& word : words(pass.table->provides)) provided[word].push_back(pass.id);
  }
  for (const PassUse& pass : passes) {
    for (const std::string& word : words(pass.table->needs)) {
      if (!provided.contains(word)) {
        return Error{"P004", pass.id + " needs '" + word + "', which no strategy of the recipe provides",
                     "/strategies", "add a strategy that provides it", TENON_E_RECIPE};
      }
    }
    for (const std::string& word : words(pass.table->conflicts)) {
      for (const std::string& other : provided[word]) {
        if (other == pass.id) continue;
        return Error{"P004", pass.id + " conflicts with '" + word + "' of " + other, pass.place,
                     "remove one of the two", TENON_E_RECIPE};
      }
    }
  }
  return {};
}

// Ranks of different stages run different ops: nothing is cut over these.
Status check_stages(const std::vector<PassUse>& passes, const Graph& graph, const Mesh& mesh) {
  if (graph.pipeline == kNone) return {};
  const auto cuts = [&](const Value& value) -> const std::string* {
    const auto pin = std::ranges::find(value.pins, graph.pipeline, &Pin::axis);
    if (pin != value.pins.end() && pin->dim) return &pin->by;
    return std::ranges::count(value.storage.axes, graph.pipeline) > 0 ? &value.storage.by : nullptr;
  };
  for (const Value& value : graph.values()) {
    const std::string* by = cuts(value);
    if (by == nullptr) continue;
    const auto pass = std::ranges::find(passes, *by, &PassUse::id);
    return Error{"P003",
                 fmt::format("{} cuts '{}' over {}, over which {} spreads stages", *by, value.name,
                             mesh.axes[graph.pipeline].name, graph.pipeline_by),
                 pass == passes.end() ? "/strategies" : pass->place, "give each of them an axis of its own",
                 TENON_E_RECIPE};
  }
  return {};
}

// `split`: the mesh that a pass wants instead, which then is the error.
Status run_passes(const std::vector<PassUse>& passes, Graph& graph, const Mesh& mesh,
                  std::optional<Mesh>& split) {
  TENON_CHECK(check_contracts(passes));
  Statements statements;
  for (const uint32_t phase : {TENON_PHASE_A, TENON_PHASE_B}) {
    for (const PassUse& pass : passes) {
      if (pass.table->phase != phase) continue;
      tenon_graph handle{&graph, &mesh, pass.id, &statements, "", {}, {}, {}, {}};
      const tenon_pass_config config{sizeof(tenon_pass_config), static_cast<uint32_t>(pass.options.size()),
                                     pass.host, pass.options.data(), &kApi};
      tenon_error error = empty_abi_error();
      const tenon_code code = pass.table->run(&config, &handle, &error);
      if (code == TENON_OK) continue;
      Error out = from_abi(code, error, pass.place);
      out.code = "P003";
      out.cause = pass.id + ": " + out.cause;
      if (out.fix.empty()) out.fix = handle.fix;
      split = handle.split;
      return out;
    }
  }
  return check_stages(passes, graph, mesh);
}

}  // namespace

Status run_passes(const std::vector<PassUse>& passes, Graph& graph, const Mesh& mesh) {
  std::optional<Mesh> split;
  return run_passes(passes, graph, mesh, split);
}

Mesh mesh_for(const std::vector<PassUse>& passes, const Graph& graph, const Mesh& mesh) {
  for (Mesh out = mesh;;) {
    Graph annotated = graph;
    std::optional<Mesh> split;
    if (run_passes(passes, annotated, out, split).ok() || !split) return out;
    out = *std::move(split);
  }
}

}  // namespace tenon
