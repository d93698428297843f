// V005 and V007: what the other checks take for granted. They index, divide and add without looking.
#include <fmt/format.h>

#include <algorithm>

#include "plan/verify/checks.h"
#include "plan/verify/verify.h"

namespace tenon {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 56;  // below the bits that tell spaces apart

Error malformed(const Program& program, const std::string& cause) {
  return refuse("V005", cause, program.name + " program");
}

// No dim is negative, and the product is small enough to count bytes.
bool countable(const Operand& operand) {
  int64_t bytes = size_of(operand.dtype);
  for (int64_t size : operand.dims) {
    if (size < 0 || __builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) return false;
  }
  return bytes < static_cast<int64_t>(kMostBytes);
}

bool known_dtype(Dtype dtype) {
  constexpr Dtype kAll[] = {Dtype::f64, Dtype::f32, Dtype::bf16, Dtype::f16,
                            Dtype::i64, Dtype::i32, Dtype::u8};
  return std::ranges::count(kAll, dtype) > 0;
}

// Inside its buffer. A part of a bucket (`part`) has no dims of its own.
bool lies(const Program& program, const Operand& operand) {
  if (operand.buffer >= program.buffers.size() || !known_dtype(operand.dtype) || !countable(operand))
    return false;
  const Buffer& buffer = program.buffers[operand.buffer];
  const uint64_t bytes = buffer.bytes, mine = operand.bytes();
  if (buffer.offset + bytes > program.space_bytes[static_cast<size_t>(buffer.space)]) return false;
  return operand.offset <= bytes && mine <= bytes - operand.offset &&
         operand.offset % static_cast<uint64_t>(size_of(operand.dtype)) == 0;
}

Status check_mesh(const Program& program) {
  const Mesh& mesh = program.mesh;
  int64_t world = 1;
  for (const Axis& axis : mesh.axes) {
    if (axis.size < 1 || __builtin_mul_overflow(world, axis.size, &world))
      return malformed(program, "the mesh has an axis without ranks, or more ranks than can be counted");
  }
  const AxisId axis = program.pipeline_axis;
  const int64_t classes = axis == kNone ? 1 : axis < mesh.axes.size() ? mesh.axes[axis].size : 0;
  if (program.class_index < 0 || program.class_index >= classes)
    return malformed(program, "there is not one program for each place on the pipeline's axis");
  for (const auto* axes : {&program.batch_axes, &program.seq_axes}) {
    if (std::ranges::any_of(*axes, [&](AxisId a) { return a >= mesh.axes.size(); }))
      return malformed(program, "samples are shared out over an axis that the mesh lacks");
  }
  return {};
}

// Buffers of a space lie in it, aligned; a space is as large as its highest buffer says.
Status check_spaces(const Program& program) {
  std::array<uint64_t, kNumSpaces> end{};
  for (const Buffer& buffer : program.buffers) {
    const auto space = static_cast<size_t>(buffer.space);
    if (space >= kNumSpaces || buffer.bytes > kMostBytes || buffer.offset > kMostBytes ||
        buffer.offset % kAlignment != 0)
      return malformed(
          program, fmt::format("'{}' is in no space, or not aligned to {} bytes", buffer.name, kAlignment));
    if (buffer.space != Space::arena)
      end[space] = std::max(end[space], buffer.offset + aligned(buffer.bytes));
  }
  for (Space space : {Space::param, Space::state, Space::input}) {
    const auto i = static_cast<size_t>(space);
    if (program.space_bytes[i] == end[i]) continue;
    return malformed(program, fmt::format("{} bytes are planned for {}s, and they take {}",
                                          program.space_bytes[i], name_of(space), end[i]));
  }
  return {};
}

Status check_operands(const Program& program) {
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    const Instr& instr = program.instrs[id];
    bool fits = instr.layout < static_cast<int32_t>(program.layouts.size());
    const auto look = [&](const Operand& operand) { fits &= lies(program, operand); };
    std::ranges::for_each(instr.in, look);
    std::ranges::for_each(instr.out, look);
    if (instr.workspace.buffer != kNone) {
      look(instr.workspace);
      fits &= instr.workspace.buffer < program.buffers.size() &&
              program.buffers[instr.workspace.buffer].space == Space::arena;
    }
    for (InstrId wait : instr.waits) fits &= wait < program.instrs.size();
    if (!fits) return refuse("V005", "reaches beyond its memory, or beyond the program", where(program, id));
  }
  const auto in_space = [&](const Operand& operand, Space space) {
    return operand.buffer < program.buffers.size() && program.buffers[operand.buffer].space == space;
  };
  for (const auto& set : program.inputs) {
    for (const auto& [name, operand] : set) {
      if (!lies(program, operand) || !in_space(operand, Space::input))
        return malformed(program, fmt::format("input '{}' is not among the inputs", name));
    }
  }
  for (const auto& [name, operand] : program.outputs) {
    if (!lies(program, operand)) return malformed(program, fmt::format("output '{}' has no memory", name));
  }
  for (const auto* tensors : {&program.params, &program.states}) {
    const Space space = tensors == &program.params ? Space::param : Space::state;
    for (const TensorInfo& tensor : *tensors) {
      const bool fits = in_space(tensor.operand, space) && known_dtype(tensor.operand.dtype) &&
                        countable(tensor.operand) && (tensor.depth > 0 || lies(program, tensor.operand));
      if (!fits)
        return malformed(program, fmt::format("'{}' is not among the {}s", tensor.name, name_of(space)));
    }
  }
  return {};
}

// What lasts beyond a program is a parameter's, a state's or an input's: the programs of a run share that
// memory.
Status check_owned(const Program& program) {
  std::vector<bool> owned(program.buffers.size());
  for (const auto* tensors : {&program.params, &program.states}) {
    for (const TensorInfo& tensor : *tensors) owned[tensor.operand.buffer] = true;
  }
  for (const auto& set : program.inputs) {
    for (const auto& [name, operand] : set) owned[operand.buffer] = true;
  }
  for (BufferId id = 0; id < program.buffers.size(); ++id) {
    const Buffer& buffer = program.buffers[id];
    if (buffer.space != Space::arena && !owned[id])
      return malformed(program,
                       fmt::format("'{}' is among the {}s, and is none", buffer.name, name_of(buffer.space)));
  }
  return {};
}

// A layout's leaves are whole parameters, side by side, and its parts together are all of it.
Status check_layout(const Program& program, const FlatLayout& layout, std::vector<int>& in_layouts) {
  const auto wrong = [&](const std::string& what) {
    return refuse("V007", what,
                  fmt::format("{} program, layout of '{}'", program.name,
                              layout.leaves.empty() ? "nothing"
                              : layout.leaves[0].param < program.params.size()
                                  ? program.params[layout.leaves[0].param].name
                                  : "nobody"));
  };
  for (AxisId axis : layout.axes) {
    const bool once = std::ranges::count(layout.axes, axis) == 1 && axis < program.mesh.axes.size();
    if (!once) return wrong("a bucket is cut by an axis twice, or by one that the mesh lacks");
  }
  if (layout.param_depth > layout.depth()) return wrong("parameters are cut more than what is updated");
  int64_t end = 0;
  for (const FlatLayout::Leaf& leaf : layout.leaves) {
    if (leaf.param >= program.params.size()) return wrong("a bucket has a parameter that is not there");
    const TensorInfo& param = program.params[leaf.param];
    ++in_layouts[leaf.param];
    if (leaf.first < end) return wrong("'" + param.name + "' shares elements with the leaf before it");
    if (leaf.count != param.operand.elements()) return wrong("'" + param.name + "' is not there as a whole");
    end = leaf.first + leaf.count;
  }
  const std::vector<int64_t>& cuts = layout.cuts;
  const auto members = static_cast<size_t>(program.mesh.size(layout.axes));
  const bool whole = end <= layout.elements && cuts.size() == members + 1 && cuts.front() == 0 &&
                     cuts.back() == layout.elements && std::ranges::is_sorted(cuts);
  return whole ? Status() : wrong("the parts of its members are not all of a bucket, each element once");
}

// Each parameter is one leaf of one bucket, which both know.
Status check_layouts(const Program& program) {
  std::vector<int> in_layouts(program.params.size());
  for (const FlatLayout& layout : program.layouts) TENON_CHECK(check_layout(program, layout, in_layouts));
  for (size_t i = 0; i < in_layouts.size(); ++i) {
    const TensorInfo& param = program.params[i];
    const bool known = param.layout < program.layouts.size() &&
                       param.leaf < program.layouts[param.layout].leaves.size() &&
                       program.layouts[param.layout].leaves[param.leaf].param == i;
    if (in_layouts[i] != 1)
      return refuse("V007", fmt::format("parameter '{}' is in {} buckets", param.name, in_layouts[i]),
                    param.name);
    if (!known || param.depth != program.layouts[param.layout].param_depth)
      return refuse("V007", fmt::format("'{}' is not where its bucket says", param.name), param.name);
  }
  return {};
}

}  // namespace

Status check_form(const Program& program) {
  TENON_CHECK(check_mesh(program));
  TENON_CHECK(check_spaces(program));
  TENON_CHECK(check_operands(program));
  TENON_CHECK(check_owned(program));
  return check_layouts(program);
}

Status check_form(const std::vector<Program>& programs) {
  std::vector<Interface> classes;
  for (const Program& program : programs) {
    TENON_CHECK(check_form(program));
    classes.push_back({program.name,
                       program.mesh,
                       program.pipeline_axis,
                       program.class_index,
                       program.batch_axes,
                       program.seq_axes,
                       {},
                       {},
                       {}});
  }
  return check_one_run(classes);
}

}  // namespace tenon
