#include "run/tensors.h"

#include <algorithm>
#include <functional>

#include "base/hash.h"
#include "base/rng.h"

namespace tenon {
namespace {

// Fills the part of a parameter that this rank holds, as the same numbers whatever the placement.
template <class Real>
void fill_part(Init init, uint64_t key, int64_t first, std::span<Real> out) {
  switch (init.kind) {
    case Init::Kind::zeros: std::fill(out.begin(), out.end(), Real{0}); break;
    case Init::Kind::ones: std::fill(out.begin(), out.end(), Real{1}); break;
    case Init::Kind::normal: fill_normal(key, first, out, init.scale); break;
    case Init::Kind::uniform:
      if (init.scale > 0)
        fill_uniform(key, first, out, -init.scale, init.scale);
      else
        std::fill(out.begin(), out.end(), Real{0});
      break;
  }
}

// The box of the tensor that a rank computes with.
checkpoint::Box box_of(const TensorInfo& tensor, const Mesh& mesh, int64_t rank) {
  const auto at = mesh.coordinate(rank);
  checkpoint::Box box;
  for (size_t d = 0; d < tensor.dims.size(); ++d) {
    const int64_t index = index_on(mesh, at, tensor.placement.dims[d]);
    box.push_back({index * tensor.operand.dims[d], tensor.operand.dims[d]});
  }
  return box;
}

// Calls visit(global offset, local offset, count) for each run that is contiguous in both.
template <class Visit>
void each_run(const TensorInfo& tensor, const checkpoint::Box& box, Visit visit) {
  const auto& local = tensor.operand.dims;
  const int64_t run = local.empty() ? 1 : local.back();
  const int64_t runs = run == 0 ? 0 : tensor.operand.elements() / run;
  for (int64_t r = 0; r < runs; ++r) {
    int64_t rest = r, stride = local.empty() ? 1 : tensor.dims.back().size;
    int64_t global = local.empty() ? 0 : box.back().start;
    for (size_t d = local.size() - (local.empty() ? 0 : 1); d-- > 0;) {
      global += (box[d].start + rest % local[d]) * stride;
      rest /= local[d];
      stride *= tensor.dims[d].size;
    }
    visit(global, r * run, run);
  }
}

}  // namespace

void Tensors::initialise(uint64_t seed) const {
  for (const TensorInfo& param : params()) {
    const uint64_t key = key_from(seed, "init/" + param.name);
    char* base = data(param);
    const Held part = held(param);
    each_run(param, box_of(param, device_.mesh(), device_.id().rank),
             [&](int64_t global, int64_t local, int64_t n) {
               const int64_t lo = std::max(local, part.first),
                             hi = std::min(local + n, part.first + part.count);
               if (lo >= hi) return;
               global += lo - local;
               local = lo - part.first;
               const auto count = static_cast<size_t>(hi - lo);
               if (param.operand.dtype == Dtype::f64)
                 fill_part<double>(param.init, key, global, {reinterpret_cast<double*>(base) + local, count});
               else
                 fill_part<float>(param.init, key, global, {reinterpret_cast<float*>(base) + local, count});
             });
  }
}

const TensorInfo* Tensors::find(const std::string& name) const {
  for (const auto* list : {&params(), &states()}) {
    for (const TensorInfo& tensor : *list) {
      if (tensor.name == name) return &tensor;
    }
  }
  return nullptr;
}

char* Tensors::data(const TensorInfo& tensor) const {
  const Held part = held(tensor);
  return device_.address(layout_, Operand{part.buffer, part.offset, tensor.operand.dtype, {}, ""});
}

checkpoint::Slice Tensors::slice(const TensorInfo& tensor) const {
  const Held part = held(tensor);
  return {box_of(tensor, device_.mesh(), device_.id().rank), {part.first, part.count}};
}

// Ranks with the same part differ only in coordinates on axes that neither shard the tensor nor cut its
// layout. They take turns over the tensors.
bool Tensors::speaks_for(const TensorInfo& tensor) const {
  if (tensor.copy) return false;
  const Mesh& mesh = layout_.mesh;
  std::vector<bool> cuts(mesh.axes.size());
  for (const auto& dim : tensor.placement.dims) {
    for (AxisId axis : dim) cuts[axis] = true;
  }
  for (AxisId axis : axes_between(layout_.layouts[tensor.layout], 0, tensor.depth)) cuts[axis] = true;
  if (layout_.pipeline_axis != kNone) cuts[layout_.pipeline_axis] = true;
  const auto at = mesh.coordinate(device_.id().rank);
  int64_t mine = 0, holders = 1;
  for (size_t axis = 0; axis < cuts.size(); ++axis) {
    if (cuts[axis]) continue;
    mine = mine * mesh.axes[axis].size + at[axis];
    holders *= mesh.axes[axis].size;
  }
  return index_of(tensor) % holders == mine;
}

int64_t Tensors::index_of(const TensorInfo& tensor) const {
  const auto& first = params();
  const std::less_equal<> at_most;  // of pointers into two lists
  const bool is_param = at_most(first.data(), &tensor) && !at_most(first.data() + first.size(), &tensor);
  return is_param ? &tensor - first.data() : std::ssize(first) + (&tensor - states().data());
}

GradientPart gradient_of(const Program& train, const RankDevice& device, const std::string& param) {
  const auto info = std::ranges::find(train.params, param, &TensorInfo::name);
  if (info == train.params.end()) return {};
  for (const Instr& instr : train.instrs) {
    if (instr.kind != "update" || instr.layout != static_cast<int32_t>(info->layout)) continue;
    const FlatLayout& layout = train.layouts[info->layout];
    const FlatPart mine = part_of(train, layout, layout.depth(), device.id().rank);
    const LeafPart part = leaf_in(layout.leaves[info->leaf], mine);
    const Operand& grad = optimizer_operands(instr).grad;
    return {device.address(train, grad) + part.at * size_of(grad.dtype), part.first, part.count};
  }
  return {};
}

}  // namespace tenon
