// Parameters and states: what initial values, checkpoints, updates and norms know of them.
#include <fmt/format.h>

#include "mutation.h"

namespace tenon::mutants {
namespace {
namespace of_tensor {

using Programs = std::vector<Program>;
using Tensors = std::vector<TensorInfo> Program::*;

// At each of the parameters and states; `change` is given the program, the tensor and the way.
template <class Ways, class Change>
Sites at_tensors(const Program& program, Ways ways, Change change) {
  Sites out;
  for (const Tensors list : {&Program::params, &Program::states}) {
    for (size_t i = 0; i < (program.*list).size(); ++i) {
      const size_t n = ways((program.*list)[i]);
      if (n == 0) continue;
      out.push_back({n, [=](Program& changed, size_t way) {
                       TensorInfo& tensor = (changed.*list)[i];
                       const std::string name = tensor.name, what = change(changed, tensor, way);
                       return what.empty() ? what : "'" + name + "': " + what;
                     }});
    }
  }
  return out;
}

template <auto member>
Sites numbers(const Programs& programs, size_t which) {
  return at_tensors(
      programs[which], [](const TensorInfo&) { return kNumberWays; },
      [](Program&, TensorInfo& tensor, size_t way) { return renumber(tensor.*member, way); });
}

template <Tensors list>
Sites listed(const Programs& programs, size_t which) {
  return once(list_ways(programs[which].*list),
              [](Program& program, size_t way) { return change_list(program.*list, way); });
}

Sites names(const Programs& programs, size_t which) {
  const size_t params = programs[which].params.size(), n = params + programs[which].states.size();
  return at_tensors(
      programs[which], [n](const TensorInfo&) { return n + 1; },
      [params, n](Program& program, TensorInfo& tensor, size_t way) -> std::string {
        const std::string other = way == n       ? "no such tensor"
                                  : way < params ? program.params[way].name
                                                 : program.states[way - params].name;
        if (tensor.name == other) return "";
        tensor.name = other;
        return "called '" + other + "'";
      });
}

// -- the operand ------------------------------------------------------------------------------------

Sites buffers(const Programs& programs, size_t which) {
  const size_t n = programs[which].buffers.size();
  return at_tensors(
      programs[which], [n](const TensorInfo&) { return n + 1; },
      [n](Program&, TensorInfo& tensor, size_t way) -> std::string {
        const BufferId other = way == n ? kNone : static_cast<BufferId>(way);
        if (tensor.operand.buffer == other) return "";
        tensor.operand.buffer = other;
        return fmt::format("in buffer {}", other);
      });
}

Sites offsets(const Programs& programs, size_t which) {
  return at_tensors(
      programs[which], [](const TensorInfo&) { return size_t{4}; },
      [](Program&, TensorInfo& tensor, size_t way) {
        constexpr int64_t kBy[] = {8, -8, 64, 1 << 20};
        tensor.operand.offset += static_cast<uint64_t>(kBy[way]);
        return fmt::format("{} bytes further", kBy[way]);
      });
}

Sites dtypes(const Programs& programs, size_t which) {
  return at_tensors(
      programs[which], [](const TensorInfo&) { return size_t{3}; },
      [](Program&, TensorInfo& tensor, size_t way) -> std::string {
        constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::i64, Dtype::f64};
        if (tensor.operand.dtype == kDtypes[way]) return "";
        tensor.operand.dtype = kDtypes[way];
        return std::string("of ") + name_of(kDtypes[way]);
      });
}

Sites operand_names(const Programs& programs, size_t which) {
  return at_tensors(
      programs[which], [](const TensorInfo&) { return size_t{1}; },
      [](Program&, TensorInfo& tensor, size_t) {
        tensor.operand.name = tensor.operand.name + ".other";
        return std::string("its operand has another name");
      });
}

constexpr size_t kDimWays = 6;

Sites local_dims(const Programs& programs, size_t which) {
  return at_tensors(
      programs[which], [](const TensorInfo&) { return kDimWays; },
      [](Program&, TensorInfo& tensor, size_t way) -> std::string {
        const Extents before = tensor.operand.dims;
        std::vector<int64_t> dims = before;
        if (way == 0) dims.push_back(1);
        if (way == 1 && !dims.empty()) std::swap(dims.front(), dims.back());
        if (way == 2 && !dims.empty()) dims.pop_back();
        if (way == 3 && !dims.empty()) ++dims[0];
        if (way == 4 && !dims.empty()) dims.back() /= 2;
        if (way == 5 && dims.size() > 1) {
          dims[0] *= 2;
          dims[1] /= 2;
        }
        tensor.operand.dims = dims;
        return tensor.operand.dims == before ? "" : fmt::format("[{}] on a rank", fmt::join(dims, " "));
      });
}

Sites global_dims(const Programs& programs, size_t which) {
  return at_tensors(
      programs[which], [](const TensorInfo&) { return kDimWays; },
      [](Program&, TensorInfo& tensor, size_t way) -> std::string {
        Dims& dims = tensor.dims;
        const Dims before = dims;
        if (way == 0) dims.push_back({"more", 1});
        if (way == 1 && !dims.empty()) std::swap(dims.front(), dims.back());
        if (way == 2 && !dims.empty()) dims.pop_back();
        if (way == 3 && !dims.empty()) ++dims[0].size;
        if (way == 4 && !dims.empty()) dims.back().size *= 2;
        if (way == 5 && !dims.empty()) dims[0].name += "_other";
        return dims == before ? "" : "of " + text(dims);
      });
}

// -- where it is ------------------------------------------------------------------------------------

Sites placements(const Programs& programs, size_t which) {
  const size_t axes = programs[which].mesh.axes.size();
  return at_tensors(
      programs[which],
      [axes](const TensorInfo& tensor) { return (tensor.placement.dims.size() + 1) * (axes + 2); },
      [axes](Program&, TensorInfo& tensor, size_t way) -> std::string {
        const Placement before = tensor.placement;
        const size_t d = way / (axes + 2), how = way % (axes + 2);
        if (d == tensor.placement.dims.size()) {
          if (how < axes)
            tensor.placement.add_partial(static_cast<AxisId>(how), Reduction::sum);
          else if (how == axes)
            tensor.placement.dims.emplace_back();
          else if (!tensor.placement.dims.empty())
            tensor.placement.dims.pop_back();
        } else {
          auto& dim = tensor.placement.dims[d];
          if (how < axes)
            dim.push_back(static_cast<AxisId>(how));
          else if (how == axes)
            dim.clear();
          else
            std::reverse(dim.begin(), dim.end());
        }
        return tensor.placement == before ? "" : "placed otherwise";
      });
}

Sites inits(const Programs& programs, size_t which) {
  return at_tensors(
      programs[which], [](const TensorInfo&) { return size_t{5}; },
      [](Program&, TensorInfo& tensor, size_t way) -> std::string {
        auto& [kind, scale] = tensor.init;
        const auto before = kind;
        if (way < 4)
          kind = static_cast<Init::Kind>(way);
        else
          scale = 2 * scale + 1;
        return way < 4 && kind == before ? "" : "starts with other values";
      });
}

Sites layouts(const Programs& programs, size_t which) {
  const size_t n = programs[which].layouts.size() + 1;
  return at_tensors(
      programs[which], [n](const TensorInfo&) { return n; },
      [](Program&, TensorInfo& tensor, size_t way) -> std::string {
        if (tensor.layout == way) return "";
        tensor.layout = static_cast<uint32_t>(way);
        return fmt::format("of layout {}", way);
      });
}

Sites copies(const Programs& programs, size_t which) {
  return at_tensors(
      programs[which], [](const TensorInfo&) { return size_t{1}; },
      [](Program&, TensorInfo& tensor, size_t) {
        tensor.copy = !tensor.copy;
        return std::string(tensor.copy ? "a copy" : "no copy");
      });
}

constexpr Mutation kMutations[] = {
    {"Program.params", "left out, repeated, exchanged", listed<&Program::params>},
    {"Program.states", "left out, repeated, exchanged", listed<&Program::states>},
    {"TensorInfo.name", "another", names},
    {"TensorInfo.operand", "another buffer", buffers},
    {"TensorInfo.operand", "another offset", offsets},
    {"TensorInfo.operand", "another dtype", dtypes},
    {"TensorInfo.operand", "another name", operand_names},
    {"TensorInfo.operand", "other dims", local_dims},
    {"TensorInfo.dims", "others", global_dims},
    {"TensorInfo.placement", "another", placements},
    {"TensorInfo.init", "another", inits},
    {"TensorInfo.layout", "another", layouts},
    {"TensorInfo.leaf", "another", numbers<&TensorInfo::leaf>},
    {"TensorInfo.depth", "another", numbers<&TensorInfo::depth>},
    {"TensorInfo.copy", "flipped", copies},
};

}  // namespace of_tensor
}  // namespace

std::span<const Mutation> tensor_mutations() { return of_tensor::kMutations; }

}  // namespace tenon::mutants
