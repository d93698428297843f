#include "plan/verify/interface.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/verify/checks.h"

namespace tenon {
namespace {

Print print_of(const Program& program, const FlatLayout& layout) {
  PrintHash hash("bucket");
  hash.add(static_cast<uint64_t>(layout.elements)).add(layout.param_depth).add(layout.axes.size());
  for (AxisId axis : layout.axes) hash.add(static_cast<uint64_t>(axis));
  for (int64_t cut : layout.cuts) hash.add(static_cast<uint64_t>(cut));
  for (const FlatLayout::Leaf& leaf : layout.leaves) {
    hash.add(program.params[leaf.param].name);
    hash.add(static_cast<uint64_t>(leaf.first)).add(static_cast<uint64_t>(leaf.count));
  }
  return hash.print();
}

// Which bytes hold which part of it.
Print print_of(const Program& program, const TensorInfo& tensor) {
  const Buffer& buffer = program.buffers[tensor.operand.buffer];
  PrintHash hash("lies");
  hash.add(static_cast<uint64_t>(buffer.space))
      .add(buffer.offset)
      .add(buffer.bytes)
      .add(tensor.operand.offset);
  for (int64_t size : *tensor.operand.dims) hash.add(static_cast<uint64_t>(size));
  for (const std::vector<AxisId>& dim : tensor.placement.dims) {
    hash.add(dim.size());
    for (AxisId axis : dim) hash.add(static_cast<uint64_t>(axis));
  }
  return hash.print();
}

std::vector<Interface::Tensor> tensors_of(const Program& program, const std::vector<Print>& buckets,
                                          const std::vector<TensorInfo>& tensors) {
  std::vector<Interface::Tensor> out;
  for (const TensorInfo& tensor : tensors) {
    out.push_back({tensor.name, {}, tensor.operand.dtype, tensor.copy, {}, print_of(program, tensor)});
    for (const Dim& dim : tensor.dims) out.back().dims.push_back(dim.size);
    if (tensor.layout >= buckets.size()) continue;
    out.back().bucket = PrintHash("in bucket")
                            .add(buckets[tensor.layout])
                            .add(static_cast<uint64_t>(tensor.leaf))
                            .add(tensor.depth)
                            .print();
  }
  return out;
}

// Of each parameter one class has the original, and all of its state; the others have copies that lie alike.
Status check_owners(const std::vector<Interface>& classes, const Reference& reference) {
  std::map<std::string, int> owners, states;
  std::map<std::string, std::vector<Print>> buckets;
  for (const Interface& one : classes) {
    for (const Interface::Tensor& param : one.params) {
      owners[param.name] += param.copy ? 0 : 1;
      buckets[param.name].push_back(param.bucket);
    }
    for (const Interface::Tensor& state : one.states) ++states[state.name];
  }
  const JointGraph& joint = *reference.joint;
  for (size_t i = 0; i < joint.params.size(); ++i) {
    const std::string& name = joint.graph.value(joint.params[i]).name;
    if (owners[name] != 1)
      return refuse("V007", fmt::format("parameter '{}' is owned by {} stages", name, owners[name]), name);
    const std::vector<Print>& of_param = buckets[name];
    if (std::ranges::count(of_param, of_param.front()) != std::ssize(of_param))
      return refuse("V007", fmt::format("'{}' is not in the same bucket on all its stages", name), name);
    if (!reference.training) continue;
    const auto group = static_cast<size_t>(reference.optimizer.group_of_param[i]);
    for (const StateSlot& slot : reference.optimizer.groups[group].slots) {
      const std::string state = state_name(name, reference.optimizer, slot);
      if (states[state] != 1)
        return refuse("V007", fmt::format("'{}' is kept {} times", state, states[state]), name);
    }
  }
  return {};
}

std::string text_of(const Transfer& t) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {}\n", name_of(t.kind), fmt::join(t.members, ","), t.root,
                     t.bytes, name_of(t.dtype), static_cast<int>(t.reduction), t.value,
                     static_cast<int>(t.because), t.microbatch, t.lane, fmt::join(t.needs, ","));
}

std::string text_of(const Interface::Tensor& t) {
  return fmt::format("{} {} {} {} {} {}\n", t.name, fmt::join(t.dims, ","), name_of(t.dtype), t.copy,
                     t.bucket.a, t.bucket.b);
}

}  // namespace

Interface interface_of(const Program& program) {
  std::vector<Print> buckets;
  for (const FlatLayout& layout : program.layouts) buckets.push_back(print_of(program, layout));
  return {program.name,
          program.mesh,
          program.pipeline_axis,
          program.class_index,
          program.batch_axes,
          program.seq_axes,
          tensors_of(program, buckets, program.params),
          tensors_of(program, buckets, program.states),
          program.pipeline_axis == kNone ? std::vector<Transfer>() : transfers_between_classes(program)};
}

std::vector<Interface> interfaces_of(const std::vector<Program>& programs) {
  std::vector<Interface> out;
  for (const Program& program : programs) out.push_back(interface_of(program));
  return out;
}

std::string serialize(const Interface& interface) {
  std::string out = fmt::format("{} {} {} {} {} {}\n", interface.program, interface.mesh.text(),
                                interface.pipeline_axis, interface.class_index,
                                fmt::join(interface.batch_axes, ","), fmt::join(interface.seq_axes, ","));
  for (const Interface::Tensor& param : interface.params) out += text_of(param);
  for (const Interface::Tensor& state : interface.states) out += text_of(state);
  for (const Transfer& transfer : interface.transfers) out += text_of(transfer);
  return out;
}

Status check_one_run(const std::vector<Interface>& classes) {
  const Interface& first = classes.front();
  const int64_t wanted = first.pipeline_axis == kNone ? 1 : first.mesh.axes[first.pipeline_axis].size;
  bool same = std::ssize(classes) == wanted;
  for (int64_t i = 0; same && i < wanted; ++i) {
    const Interface& one = classes[static_cast<size_t>(i)];
    same = one.mesh.axes == first.mesh.axes && one.pipeline_axis == first.pipeline_axis &&
           one.class_index == i && one.program == first.program && one.batch_axes == first.batch_axes &&
           one.seq_axes == first.seq_axes;
  }
  return same ? Status()
              : refuse("V005", "the programs of the stages are not of one run", first.program + " program");
}

Status check_classes(const std::vector<Interface>& classes, const Reference& reference) {
  TENON_CHECK(check_one_run(classes));
  return check_owners(classes, reference);
}

Status check_alike(const std::vector<Interface>& classes, const std::vector<Interface>& others) {
  for (size_t i = 0; i < std::min(classes.size(), others.size()); ++i) {
    if (!(classes[i].params == others[i].params))
      return refuse("V005", "its parameters do not lie as those of the others do",
                    classes[i].program + " program");
  }
  return {};
}

}  // namespace tenon
