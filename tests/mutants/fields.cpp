#include "fields.h"

#include "plan/program/program.h"

namespace tenon::mutants {
namespace {

// A struct with one more field does not fit these bindings: give the new one a row here and a mutation, or
// say why nothing reads it.

constexpr Field kProgram[] = {
    {"Program.name"},
    {"Program.mesh"},
    {"Program.microbatches"},
    {"Program.lanes"},
    {"Program.window", "a check reads it: what it demands is in the waits"},
    {"Program.buffers"},
    {"Program.instrs"},
    {"Program.params"},
    {"Program.states"},
    {"Program.inputs"},
    {"Program.batch_axes"},
    {"Program.seq_axes"},
    {"Program.outputs"},
    {"Program.layouts"},
    {"Program.pipeline_axis"},
    {"Program.class_index", "reports and checks read it; a rank finds its program by pipeline_axis"},
    {"Program.space_bytes"},
    {"Program.kernel_private_bytes", "a report of memory reads it"},
    {"Program.flops", "estimates and reports read it"},
};
void bind(const Program& program) {
  const auto& [name, mesh, microbatches, lanes, window, buffers, instrs, params, states, inputs, batch_axes,
               seq_axes, outputs, layouts, pipeline_axis, class_index, space_bytes, kernel_private_bytes,
               flops] = program;
  static_assert(std::size(kProgram) == 19);
  static_cast<void>(name);
}

constexpr Field kBuffer[] = {
    {"Buffer.name", "messages and pictures read it"},
    {"Buffer.space"},
    {"Buffer.bytes", "the checks read it: a buffer's operands say for themselves how long they are"},
    {"Buffer.offset"},
    {"Buffer.gaps", "a check reads it"},
};
void bind(const Buffer& buffer) {
  const auto& [name, space, bytes, offset, gaps] = buffer;
  static_assert(std::size(kBuffer) == 5);
  static_cast<void>(name);
}

constexpr Field kOperand[] = {
    {"Operand.buffer"}, {"Operand.offset"}, {"Operand.dtype"}, {"Operand.dims"}, {"Operand.name"},
};
void bind(const Operand& operand) {
  const auto& [buffer, offset, dtype, dims, name] = operand;
  static_assert(std::size(kOperand) == 5);
  static_cast<void>(name);
}

constexpr Field kInstr[] = {
    {"Instr.kind"},
    {"Instr.phase", "pictures, estimates and a check read it"},
    {"Instr.microbatch", "messages, pictures and checks read it"},
    {"Instr.layer", "reports read it"},
    {"Instr.stage", "reports and checks read it"},
    {"Instr.lane"},
    {"Instr.in"},
    {"Instr.out"},
    {"Instr.workspace"},
    {"Instr.attrs"},
    {"Instr.accumulate"},
    {"Instr.inplace"},
    {"Instr.axes"},
    {"Instr.offset_step"},
    {"Instr.reduction"},
    {"Instr.peer"},
    {"Instr.layout"},
    {"Instr.flops", "estimates and reports read it"},
    {"Instr.waits"},
    {"Instr.why", "plan --why reads it"},
    {"Instr.fused", "plan --why reads it"},
};
void bind(const Instr& instr) {
  const auto& [kind, phase, microbatch, layer, stage, lane, in, out, workspace, attrs, accumulate, inplace,
               axes, offset_step, reduction, peer, layout, flops, waits, why, fused] = instr;
  static_assert(std::size(kInstr) == 21);
  static_cast<void>(kind);
}

constexpr Field kTensorInfo[] = {
    {"TensorInfo.name"},      {"TensorInfo.operand"}, {"TensorInfo.dims"},
    {"TensorInfo.placement"}, {"TensorInfo.init"},    {"TensorInfo.layout"},
    {"TensorInfo.leaf"},      {"TensorInfo.depth"},   {"TensorInfo.copy"},
};
void bind(const TensorInfo& tensor) {
  const auto& [name, operand, dims, placement, init, layout, leaf, depth, copy] = tensor;
  static_assert(std::size(kTensorInfo) == 9);
  static_cast<void>(name);
}

constexpr Field kFlatLayout[] = {
    {"FlatLayout.leaves"}, {"FlatLayout.elements"},    {"FlatLayout.level", "reports read it"},
    {"FlatLayout.axes"},   {"FlatLayout.param_depth"}, {"FlatLayout.cuts"},
};
void bind(const FlatLayout& layout) {
  const auto& [leaves, elements, level, axes, param_depth, cuts] = layout;
  static_assert(std::size(kFlatLayout) == 6);
  static_cast<void>(leaves);
}

constexpr Field kLeaf[] = {
    {"Leaf.param"},
    {"Leaf.first"},
    {"Leaf.count"},
    {"Leaf.group"},
};
void bind(const FlatLayout::Leaf& leaf) {
  const auto& [param, first, count, group] = leaf;
  static_assert(std::size(kLeaf) == 4);
  static_cast<void>(param);
}

// Structs of the graph that a program holds: each of their fields is changed with the field that holds them.
void bind(const Mesh& mesh) {
  const auto& [axes] = mesh;
  static_cast<void>(axes);
}
void bind(const Axis& axis) {
  const auto& [name, size, part_of] = axis;
  static_cast<void>(name);
}
void bind(const Dim& dim) {
  const auto& [name, size] = dim;
  static_cast<void>(name);
}
void bind(const Placement& placement) {
  const auto& [dims, partials] = placement;
  static_cast<void>(dims);
}
void bind(const Init& init) {
  const auto& [kind, scale] = init;
  static_cast<void>(kind);
}
void bind(const Why& why) {
  const auto& [because, tree, op, value, stage] = why;
  static_cast<void>(because);
}

}  // namespace

std::vector<Field> fields() {
  bind(Program());
  bind(Mesh());
  bind(Axis());
  bind(Buffer());
  bind(Instr());
  bind(Why());
  bind(Operand());
  bind(TensorInfo());
  bind(Dim());
  bind(Placement());
  bind(Init());
  bind(FlatLayout());
  bind(FlatLayout::Leaf());
  std::vector<Field> out;
  for (const std::span<const Field> rows :
       {std::span<const Field>(kProgram), std::span<const Field>(kBuffer), std::span<const Field>(kOperand),
        std::span<const Field>(kInstr), std::span<const Field>(kTensorInfo),
        std::span<const Field>(kFlatLayout), std::span<const Field>(kLeaf)})
    out.insert(out.end(), rows.begin(), rows.end());
  return out;
}

}  // namespace tenon::mutants
