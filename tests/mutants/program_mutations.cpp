// A program's own fields: its mesh, inputs, outputs and class.
#include <fmt/format.h>

#include "mutation.h"

namespace tenon::mutants {
namespace {
namespace of_program {

using Programs = std::vector<Program>;
using Operands = std::map<std::string, Operand>;

Sites names(const Programs&, size_t) {
  return once(4, [](Program& program, size_t way) -> std::string {
    constexpr const char* kNames[] = {"train", "eval", "logits", "no such program"};
    if (program.name == kNames[way]) return "";
    program.name = kNames[way];
    return std::string("called ") + kNames[way];
  });
}

Sites mesh_axes(const Programs& programs, size_t which) {
  return once(list_ways(programs[which].mesh.axes),
              [](Program& program, size_t way) { return change_list(program.mesh.axes, way); });
}

Sites mesh_sizes(const Programs& programs, size_t which) {
  return once(kNumberWays * programs[which].mesh.axes.size(), [](Program& program, size_t way) {
    return renumber(program.mesh.axes[way / kNumberWays].size, way % kNumberWays);
  });
}

Sites mesh_names(const Programs& programs, size_t which) {
  return once(programs[which].mesh.axes.size(), [](Program& program, size_t way) {
    program.mesh.axes[way].name += "_other";
    return "axis " + program.mesh.axes[way].name;
  });
}

template <auto member>
Sites number(const Programs&, size_t) {
  return once(kNumberWays, [](Program& program, size_t way) { return renumber(program.*member, way); });
}

Sites lanes(const Programs& programs, size_t which) {
  return once(list_ways(programs[which].lanes),
              [](Program& program, size_t way) { return change_list(program.lanes, way); });
}

Sites lane_names(const Programs& programs, size_t which) {
  return once(programs[which].lanes.size(), [](Program& program, size_t way) {
    program.lanes[way] += "_other";
    return "lane " + program.lanes[way];
  });
}

template <auto member>
Sites axes(const Programs& programs, size_t which) {
  return once(axes_ways(programs[which], programs[which].*member),
              [](Program& program, size_t way) { return change_axes(program, program.*member, way); });
}

Sites pipeline_axis(const Programs& programs, size_t which) {
  return once(programs[which].mesh.axes.size() + 1, [](Program& program, size_t way) -> std::string {
    const AxisId other = way == program.mesh.axes.size() ? kNone : static_cast<AxisId>(way);
    if (program.pipeline_axis == other) return "";
    program.pipeline_axis = other;
    return fmt::format("pipeline over axis {}", other);
  });
}

// -- inputs and outputs -----------------------------------------------------------------------------

std::vector<Operand> all_operands(const Program& program) {
  std::vector<Operand> out;
  for (const auto& set : program.inputs) {
    for (const auto& [name, operand] : set) out.push_back(operand);
  }
  for (const Instr& instr : program.instrs) {
    for (const Operand& operand : instr.out) {
      if (out.size() < 400) out.push_back(operand);
    }
  }
  return out;
}

// A named operand left out, renamed, another's place, other fields.
constexpr size_t kNamedWays = 9;  // before the places of others

std::string change_named(Operands& named, size_t at, size_t way, const std::vector<Operand>& others) {
  const auto entry = std::next(named.begin(), static_cast<std::ptrdiff_t>(at));
  const std::string name = entry->first;
  Operand& operand = entry->second;
  switch (way) {
    case 0: named.erase(entry); return name + " left out";
    case 1: {
      const Operand copy = operand;
      named.erase(entry);
      named[name + ".other"] = copy;
      return name + " has another name";
    }
    case 2: named["no such name"] = operand; return name + " under another name too";
    case 3: operand.offset += 8; return name + " further";
    case 4: operand.name = operand.name + ".other"; return name + " claims another name";
    case 5:
      operand.dtype = operand.dtype == Dtype::f64 ? Dtype::i64 : Dtype::f64;
      return name + " of another dtype";
    case 6: operand.dims.change([](auto& dims) { dims.push_back(2); }); return name + " with another dim";
    case 7:
      if (operand.dims.empty()) return "";
      operand.dims.change([](auto& dims) { ++dims[0]; });
      return name + " with larger dims";
    case 8: operand.buffer = kNone; return name + " in no buffer";
    default: break;
  }
  const Operand& other = others[way - kNamedWays];
  if (other.bytes() != operand.bytes() || (other.buffer == operand.buffer && other.offset == operand.offset))
    return "";
  operand.buffer = other.buffer;
  operand.offset = other.offset;
  return name + " where '" + other.name + "' is";
}

Sites outputs(const Programs& programs, size_t which) {
  const auto others = std::make_shared<const std::vector<Operand>>(all_operands(programs[which]));
  const size_t ways = kNamedWays + others->size();
  return once(programs[which].outputs.size() * ways, [=](Program& program, size_t way) {
    const std::string what = change_named(program.outputs, way / ways, way % ways, *others);
    return what.empty() ? what : "output " + what;
  });
}

Sites inputs(const Programs& programs, size_t which) {
  const auto others = std::make_shared<const std::vector<Operand>>(all_operands(programs[which]));
  const size_t ways = kNamedWays + others->size();
  Sites out;
  for (size_t i = 0; i < programs[which].inputs.size(); ++i) {
    const auto site = once(programs[which].inputs[i].size() * ways, [=](Program& program, size_t way) {
      const std::string what = change_named(program.inputs[i], way / ways, way % ways, *others);
      return what.empty() ? what : fmt::format("microbatch {}: input {}", i, what);
    });
    out.push_back(site.front());
  }
  return out;
}

Sites input_sets(const Programs& programs, size_t which) {
  return once(list_ways(programs[which].inputs),
              [](Program& program, size_t way) { return change_list(program.inputs, way); });
}

constexpr Mutation kMutations[] = {
    {"Program.name", "another", names},
    {"Program.mesh", "axes left out, repeated, exchanged", mesh_axes},
    {"Program.mesh", "an axis of another size", mesh_sizes},
    {"Program.mesh", "an axis of another name", mesh_names},
    {"Program.microbatches", "another number", number<&Program::microbatches>},
    {"Program.lanes", "left out, repeated, exchanged", lanes},
    {"Program.lanes", "another name", lane_names},
    {"Program.inputs", "one changed", inputs},
    {"Program.inputs", "those of microbatches left out, repeated, exchanged", input_sets},
    {"Program.batch_axes", "others, or in another order", axes<&Program::batch_axes>},
    {"Program.seq_axes", "others, or in another order", axes<&Program::seq_axes>},
    {"Program.outputs", "one changed", outputs},
    {"Program.pipeline_axis", "another", pipeline_axis},
    {"Program.class_index", "another", number<&Program::class_index>},
    {"Program.kernel_private_bytes", "another number", number<&Program::kernel_private_bytes>},
    {"Program.flops", "another number", number<&Program::flops>},
};

}  // namespace of_program
}  // namespace

std::span<const Mutation> program_mutations() { return of_program::kMutations; }

}  // namespace tenon::mutants
