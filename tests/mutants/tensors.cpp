#include "tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/hash.h"
#include "base/rng.h"
#include "layouts.h"

namespace tenon::mutants {
namespace {

// Elements [first, first + count) of the tensor local to a rank, and where they are.
struct LocalPart {
  int64_t first = 0, count = 0;
  char* at = nullptr;
};

void check_axes(const Mesh& mesh, const std::vector<AxisId>& axes) {
  for (AxisId axis : axes) require(axis < mesh.axes.size(), "a tensor is cut over no axis");
}

LocalPart part_of_tensor(const Program& program, const TensorInfo& tensor, int64_t rank, RankMemory& memory) {
  const uint64_t whole = bytes_of(tensor.operand);
  if (tensor.depth > 0) {
    const FlatLayout& layout = layout_of(program, tensor.layout);
    require(tensor.leaf < layout.leaves.size() && tensor.depth <= layout.depth(), "a tensor is no leaf");
  }
  const Held held = held_by(program, tensor, rank);
  const auto size = static_cast<uint64_t>(size_of(tensor.operand.dtype));
  require(
      held.first >= 0 && held.count >= 0 && static_cast<uint64_t>(held.first + held.count) * size <= whole,
      "a rank holds more than there is");
  return {held.first, held.count,
          memory.at(program, held.buffer, held.offset, static_cast<uint64_t>(held.count) * size)};
}

// Calls visit(global index, index in the part) for all elements of it.
template <class Visit>
void each(const TensorInfo& tensor, const Mesh& mesh, int64_t rank, int64_t first, int64_t count,
          Visit visit) {
  const auto& local = tensor.operand.dims;
  require(local.size() == tensor.dims.size() && local.size() == tensor.placement.dims.size(),
          "a tensor has other dims on a rank");
  const auto at = mesh.coordinate(rank);
  std::vector<int64_t> start;
  for (size_t d = 0; d < local.size(); ++d) {
    check_axes(mesh, tensor.placement.dims[d]);
    start.push_back(index_on(mesh, at, tensor.placement.dims[d]) * local[d]);
    require(start[d] + local[d] <= tensor.dims[d].size, "a rank holds more of a tensor than there is");
  }
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = first + i, global = 0, stride = 1;
    for (size_t d = local.size(); d-- > 0;) {
      global += (start[d] + rest % local[d]) * stride;
      rest /= local[d];
      stride *= tensor.dims[d].size;
    }
    visit(global, i);
  }
}

double get(const char* base, Dtype dtype, int64_t i) {
  if (dtype == Dtype::f64) {
    double out;
    std::memcpy(&out, base + i * 8, 8);
    return out;
  }
  require(dtype == Dtype::f32, "a tensor of another dtype");
  float out;
  std::memcpy(&out, base + i * 4, 4);
  return out;
}

void set(char* base, Dtype dtype, int64_t i, double value) {
  const auto single = static_cast<float>(value);
  if (dtype == Dtype::f64)
    std::memcpy(base + i * 8, &value, 8);
  else
    std::memcpy(base + i * 4, &single, 4);
}

double initial(const Init& init, uint64_t key, int64_t global) {
  const auto index = static_cast<uint64_t>(global);
  switch (init.kind) {
    case Init::Kind::zeros: return 0;
    case Init::Kind::ones: return 1;
    case Init::Kind::normal: return init.scale * normal_at(key, index);
    case Init::Kind::uniform: return init.scale * (2 * uniform_at(key, index) - 1);
  }
  return 0;
}

int64_t whole_elements(const TensorInfo& tensor) {
  int64_t out = 1;
  for (const Dim& dim : tensor.dims) {
    require(dim.size >= 0 && dim.size <= 1 << 20, "a tensor has no size");
    out *= dim.size;
    require(out <= 1 << 20, "a tensor is larger than any memory");
  }
  return out;
}

Whole& entry(Wholes& wholes, const TensorInfo& tensor) {
  Whole& out = wholes[described(tensor)];
  out.resize(static_cast<size_t>(whole_elements(tensor)), std::numeric_limits<double>::quiet_NaN());
  return out;
}

// Of the ranks that hold the same part one writes it, in turns over the tensors.
bool writes(const Program& program, const TensorInfo& tensor, size_t index, int64_t rank) {
  if (tensor.copy) return false;
  std::vector<bool> cuts(program.mesh.axes.size());
  const auto cut = [&](const std::vector<AxisId>& axes) {
    check_axes(program.mesh, axes);
    for (AxisId axis : axes) cuts[axis] = true;
  };
  for (const auto& dim : tensor.placement.dims) cut(dim);
  const FlatLayout& layout = layout_of(program, tensor.layout);
  require(tensor.depth <= layout.depth(), "a tensor is cut deeper than its layout");
  cut(axes_between(layout, 0, tensor.depth));
  if (program.pipeline_axis != kNone) cut({program.pipeline_axis});
  const auto at = program.mesh.coordinate(rank);
  int64_t mine = 0, holders = 1;
  for (size_t axis = 0; axis < cuts.size(); ++axis) {
    if (cuts[axis]) continue;
    mine = mine * program.mesh.axes[axis].size + at[axis];
    holders *= program.mesh.axes[axis].size;
  }
  return static_cast<int64_t>(index) % holders == mine;
}

template <class Visit>
void each_tensor(const Program& program, Visit visit) {
  for (const auto* list : {&program.params, &program.states}) {
    for (const TensorInfo& tensor : *list) visit(tensor);
  }
}

}  // namespace

std::string described(const TensorInfo& tensor) {
  std::string out = fmt::format("{} {}[", tensor.name, name_of(tensor.operand.dtype));
  for (const Dim& dim : tensor.dims) out += fmt::format(" {}", dim.size);
  return out + " ]";
}

void initialise(const Program& program, const Mesh& mesh, int64_t rank, uint64_t seed, RankMemory& memory) {
  for (const TensorInfo& param : program.params) {
    const LocalPart part = part_of_tensor(program, param, rank, memory);
    const uint64_t key = key_from(seed, "init/" + param.name);
    each(param, mesh, rank, part.first, part.count, [&](int64_t global, int64_t i) {
      set(part.at, param.operand.dtype, i, initial(param.init, key, global));
    });
  }
}

void save(const Program& program, const Mesh& mesh, int64_t rank, RankMemory& memory, Wholes& out) {
  size_t index = 0;
  each_tensor(program, [&](const TensorInfo& tensor) {
    if (!writes(program, tensor, index++, rank)) return;
    const LocalPart part = part_of_tensor(program, tensor, rank, memory);
    Whole& whole = entry(out, tensor);
    each(tensor, mesh, rank, part.first, part.count, [&](int64_t global, int64_t i) {
      double& element = whole[static_cast<size_t>(global)];
      if (!std::isnan(element)) throw Fault("two ranks save the same element of '" + tensor.name + "'");
      element = get(part.at, tensor.operand.dtype, i);
    });
  });
}

void load(const Program& program, const Mesh& mesh, int64_t rank, RankMemory& memory, const Wholes& from) {
  each_tensor(program, [&](const TensorInfo& tensor) {
    const auto whole = from.find(described(tensor));
    if (whole == from.end()) throw Fault("a checkpoint lacks '" + tensor.name + "'");
    const LocalPart part = part_of_tensor(program, tensor, rank, memory);
    each(tensor, mesh, rank, part.first, part.count, [&](int64_t global, int64_t i) {
      set(part.at, tensor.operand.dtype, i, whole->second[static_cast<size_t>(global)]);
    });
  });
}

std::map<std::string, std::vector<double>> held(const Program& program, int64_t rank, RankMemory& memory) {
  std::map<std::string, std::vector<double>> out;
  each_tensor(program, [&](const TensorInfo& tensor) {
    const LocalPart part = part_of_tensor(program, tensor, rank, memory);
    std::vector<double>& values = out[tensor.name];
    for (int64_t i = 0; i < part.count; ++i) values.push_back(get(part.at, tensor.operand.dtype, i));
  });
  return out;
}

void collect_gradients(const Program& program, const Mesh& mesh, int64_t rank, RankMemory& memory,
                       Wholes& out) {
  for (const TensorInfo& param : program.params) {
    if (param.copy) continue;
    const auto update = std::ranges::find_if(program.instrs, [&](const Instr& instr) {
      return instr.kind == "update" && instr.layout == static_cast<int32_t>(param.layout);
    });
    if (update == program.instrs.end()) continue;
    const FlatLayout& layout = layout_of(program, param.layout);
    require(param.leaf < layout.leaves.size(), "a parameter is no leaf");
    const LeafPart part = leaf_in(layout.leaves[param.leaf], part_of(program, layout, layout.depth(), rank));
    const Operand& grad = update->in.at(0);
    const auto size = static_cast<uint64_t>(size_of(grad.dtype));
    const char* at = memory.at(program, grad.buffer, grad.offset + static_cast<uint64_t>(part.at) * size,
                               static_cast<uint64_t>(part.count) * size);
    require(static_cast<uint64_t>(part.first + part.count) * size_of(param.operand.dtype) <=
                bytes_of(param.operand),
            "a gradient is longer than its parameter");
    Whole& whole = entry(out, param);
    each(param, mesh, rank, part.first, part.count,
         [&](int64_t global, int64_t i) { whole[static_cast<size_t>(global)] = get(at, grad.dtype, i); });
  }
}

}  // namespace tenon::mutants
