#include "plan/emit/scope.h"

#include <map>

#include "plan/emit/collectives.h"

namespace tenon {

Scope::Scope(const EmitContext& shared, int place)
    : context(shared), index(place), builder(name_of(shared.kind), shared.mesh, shared.rows.microbatches) {}

Why Scope::why(Why::Because because, size_t bucket) const {
  const size_t first = buckets()[bucket].layout.leaves.front().param;
  const size_t param = context.params.params[static_cast<size_t>(index)][first];
  return {because, false, kNone, context.joint.params[param]};
}

namespace {

Result<std::vector<int64_t>> local_sizes(const Value& value, const Mesh& mesh) {
  std::vector<int64_t> sizes;
  sizes.reserve(value.dims.size());
  for (size_t d = 0; d < value.dims.size(); ++d) {
    const int64_t size = value.dims[d].size, parts = mesh.size(value.placement.dims[d]);
    if (size % parts != 0) return local_dims(value.dims, value.placement, mesh).error();
    sizes.push_back(size / parts);
  }
  return sizes;
}

}  // namespace

std::vector<std::optional<Operand>> locals_of(const Graph& graph, const Mesh& mesh) {
  std::vector<std::optional<Operand>> out;
  out.reserve(graph.values().size());
  std::map<std::vector<int64_t>, Extents> shapes;  // few, which many values have
  for (const Value& value : graph.values()) {
    auto sizes = local_sizes(value, mesh);
    if (!sizes.ok()) {
      out.emplace_back();
      continue;
    }
    const auto [shape, fresh] = shapes.try_emplace(*std::move(sizes));
    if (fresh) shape->second = shape->first;
    out.push_back(Operand{kNone, 0, value.dtype, shape->second, value.name});
  }
  return out;
}

Result<Operand> Scope::local(ValueId id) const {
  if (const auto& known = context.locals[id]) return *known;
  const Value& value = graph().value(id);
  TENON_TRY(std::vector<int64_t> sizes, local_sizes(value, context.mesh));
  return Operand{kNone, 0, value.dtype, std::move(sizes), value.name};
}

void Scope::reshard(const Op& op, const Operand& in, const Operand& out) {
  const auto because = builder.because({Why::Because::op, false, id_of(op), op.out[0]});
  if (reshard_of(*op.def) == TransferKind::all_reduce) {
    if (in.buffer != out.buffer || in.offset != out.offset) builder.copy(in, out, op.phase);
    emit_all_reduce(builder, out, op.axes, op.phase, context.tree);
    return;
  }
  const auto from = graph().value(op.in[0]).placement.sharded_dim(op.axes[0]);
  const auto to = graph().value(op.out[0]).placement.sharded_dim(op.axes[0]);
  const Reshard how{reshard_of(*op.def), op.axes, static_cast<int64_t>(from.value_or(0)),
                    static_cast<int64_t>(to.value_or(0))};
  emit_reshard(builder, how, in, out, op.phase, context.tree);
}

Result<Operand> Scope::reshard_once(const Op& op, const Operand& in) {
  TENON_TRY(Operand out, local(op.out[0]));
  if (reshard_of(*op.def) == TransferKind::all_reduce) {
    out.buffer = in.buffer;
    out.offset = in.offset;
  } else {
    out.buffer = builder.add_buffer(out.name, Space::arena, out.bytes());
  }
  reshard(op, in, out);
  return out;
}

}  // namespace tenon
