#include "plan/program/builder.h"

#include <algorithm>

namespace tenon {

ProgramBuilder::ProgramBuilder(std::string name, const Mesh& mesh, int64_t microbatches) {
  program_.name = std::move(name);
  program_.mesh = mesh;
  program_.microbatches = microbatches;
  program_.lanes = {"compute"};
}

BufferId ProgramBuilder::add_buffer(const SharedText& name, Space space, uint64_t bytes) {
  program_.buffers.push_back({name, space, std::max<uint64_t>(bytes, 1), 0});
  return static_cast<BufferId>(program_.buffers.size() - 1);
}

Operand ProgramBuilder::scratch(const SharedText& name, Dtype dtype, Extents dims) {
  Operand out{kNone, 0, dtype, std::move(dims), name};
  out.buffer = add_buffer(name, Space::arena, out.bytes());
  return out;
}

Instr ProgramBuilder::begin(const char* kind, Phase phase) const {
  Instr instr;
  instr.kind = kind;
  instr.phase = phase;
  instr.microbatch = phase == Phase::step ? -1 : microbatch_;
  instr.stage = stage_;
  instr.why = why_;
  return instr;
}

Operand ProgramBuilder::add(const Operand& a, const Operand& b, Phase phase) {
  Instr instr = begin("add", phase);
  instr.in = {a, b};
  instr.out = {a};
  instr.inplace = 0;
  push(std::move(instr));
  return a;
}

void ProgramBuilder::copy(const Operand& from, const Operand& to, Phase phase) {
  const int64_t n = from.elements();
  slice(part(from, 0, {n}, from.name), part(to, 0, {n}, to.name), 0, 0, {}, phase);
}

void ProgramBuilder::slice(const Operand& from, const Operand& to, int64_t dim, int64_t start,
                           const std::vector<AxisId>& axes, Phase phase) {
  Instr instr = begin("slice", phase);
  instr.in = {from};
  instr.out = {to};
  const int64_t size = to.dims[static_cast<size_t>(dim)];
  instr.attrs = {{"dim", dim}, {"start", start}, {"size", size}};
  instr.axes = axes;
  instr.offset_step = axes.empty() ? 0 : size;
  push(std::move(instr));
}

Operand ProgramBuilder::pack(const Operand& from, int64_t dim, int64_t n, Phase phase) {
  std::vector<int64_t> dims = from.dims;
  const int64_t size = dims[static_cast<size_t>(dim)] /= n;
  const Extents local = std::move(dims);
  Operand packed = scratch(from.name + ".packed", from.dtype, std::vector<int64_t>{n, from.elements() / n});
  for (int64_t i = 0; i < n; ++i) {
    slice(from, part(packed, i * packed.dims[1], local, packed.name), dim, i * size, {}, phase);
  }
  return packed;
}

void ProgramBuilder::unpack(const Operand& packed, const std::vector<int64_t>& part_dims, const Operand& to,
                            int64_t dim, Phase phase) {
  Instr instr = begin("concat", phase);
  for (int64_t i = 0; i < packed.dims[0]; ++i) {
    instr.in.push_back(part(packed, i * packed.dims[1], part_dims, packed.name));
  }
  instr.out = {to};
  instr.attrs = {{"dim", dim}};
  push(std::move(instr));
}

void ProgramBuilder::collective(TransferKind kind, const std::vector<AxisId>& axes, Phase phase,
                                const Operand& in, const Operand& out) {
  Instr instr = begin(name_of(kind), phase);
  instr.lane = lane(program_.mesh.axes[axes[0]].name);
  instr.in = {in};
  instr.out = {out};
  instr.axes = axes;
  std::sort(instr.axes.begin(), instr.axes.end());
  push(std::move(instr));
}

Instr ProgramBuilder::to_peer(TransferKind kind, const std::string& lane_name, AxisId axis, int peer,
                              Phase phase) {
  Instr instr = begin(name_of(kind), phase);
  instr.lane = lane(lane_name);
  instr.axes = {axis};
  instr.peer = peer;
  return instr;
}

void ProgramBuilder::send(AxisId axis, int peer, const Operand& in, Phase phase) {
  Instr instr = to_peer(TransferKind::send, "send>" + std::to_string(peer), axis, peer, phase);
  instr.in = {in};
  push(std::move(instr));
}

void ProgramBuilder::recv(AxisId axis, int peer, const Operand& out, Phase phase) {
  Instr instr = to_peer(TransferKind::recv, "recv<" + std::to_string(peer), axis, peer, phase);
  instr.out = {out};
  push(std::move(instr));
}

void ProgramBuilder::broadcast(AxisId axis, int root, bool mine, const Operand& value) {
  Instr instr = to_peer(TransferKind::broadcast, program_.mesh.axes[axis].name, axis, root, Phase::step);
  if (mine) instr.in = {value};
  instr.out = {value};
  push(std::move(instr));
}

void ProgramBuilder::shift(const std::vector<AxisId>& axes, const Operand& in, const Operand& out,
                           Phase phase) {
  collective(TransferKind::permute, axes, phase, in, out);
  program_.instrs.back().peer = 1;
}

uint32_t ProgramBuilder::lane(const std::string& name) {
  const auto it = std::ranges::find(program_.lanes, name);
  const auto index = static_cast<uint32_t>(it - program_.lanes.begin());
  if (it == program_.lanes.end()) program_.lanes.push_back(name);
  return index;
}

Operand part(const Operand& whole, int64_t first, Extents dims, const SharedText& name) {
  return {whole.buffer, whole.offset + static_cast<uint64_t>(first * size_of(whole.dtype)), whole.dtype,
          std::move(dims), name};
}

}  // namespace tenon
