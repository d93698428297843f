#include "plan/builder.h"

#include <algorithm>

namespace tenon {

ProgramBuilder::ProgramBuilder(std::string name, const Mesh& mesh, int64_t microbatches)
    : lane_of_axis_(mesh.axes.size(), kNone) {
  program_.name = std::move(name);
  program_.mesh = mesh;
  program_.microbatches = microbatches;
  program_.lanes = {"compute"};
}

BufferId ProgramBuilder::add_buffer(const std::string& name, Space space, uint64_t bytes) {
  program_.buffers.push_back({name, space, std::max<uint64_t>(bytes, 1), 0});
  return static_cast<BufferId>(program_.buffers.size() - 1);
}

Operand ProgramBuilder::scratch(const std::string& name, Dtype dtype, std::vector<int64_t> dims) {
  Operand out{kNone, 0, dtype, std::move(dims), name};
  out.buffer = add_buffer(name, Space::arena, out.bytes());
  return out;
}

Instr ProgramBuilder::begin(const char* kind, Phase phase) const {
  Instr instr;
  instr.kind = kind;
  instr.phase = phase;
  instr.microbatch = phase == Phase::step ? -1 : microbatch_;
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
  instr.attrs = {{"dim", dim}, {"start", start}, {"size", to.dims[static_cast<size_t>(dim)]}};
  instr.axes = axes;
  push(std::move(instr));
}

Operand ProgramBuilder::pack(const Operand& from, int64_t dim, int64_t n, Phase phase) {
  std::vector<int64_t> dims = from.dims;
  int64_t& size = dims[static_cast<size_t>(dim)];
  size /= n;
  Operand packed = scratch(from.name + ".packed", from.dtype, {n, from.elements() / n});
  for (int64_t i = 0; i < n; ++i) {
    slice(from, part(packed, i * packed.dims[1], dims, packed.name), dim, i * size, {}, phase);
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

void ProgramBuilder::collective(const char* kind, const std::vector<AxisId>& axes, Phase phase,
                                const Operand& in, const Operand& out) {
  Instr instr = begin(kind, phase);
  instr.lane = lane(axes[0]);
  instr.in = {in};
  instr.out = {out};
  instr.axes = axes;
  push(std::move(instr));
}

uint32_t ProgramBuilder::lane(AxisId axis) {
  if (lane_of_axis_[axis] == kNone) {
    lane_of_axis_[axis] = static_cast<uint32_t>(program_.lanes.size());
    program_.lanes.push_back(program_.mesh.axes[axis].name);
  }
  return lane_of_axis_[axis];
}

Operand part(const Operand& whole, int64_t first, std::vector<int64_t> dims, const std::string& name) {
  return {whole.buffer, whole.offset + static_cast<uint64_t>(first * size_of(whole.dtype)), whole.dtype,
          std::move(dims), name};
}

}  // namespace tenon
