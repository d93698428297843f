#include "run/tensors.h"

#include <algorithm>

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

// First index of each dim of the part that a rank computes with of a tensor.
std::vector<int64_t> part_start(const TensorInfo& tensor, const Mesh& mesh, int64_t rank) {
  const auto at = mesh.coordinate(rank);
  std::vector<int64_t> start;
  for (size_t d = 0; d < tensor.dims.size(); ++d)
    start.push_back(index_on(mesh, at, tensor.placement.dims[d]) * tensor.operand.dims[d]);
  return start;
}

// Calls visit(global offset, local offset, count) for each run that is contiguous in both.
template <class Visit>
void each_run(const TensorInfo& tensor, const std::vector<int64_t>& start, Visit visit) {
  const auto& local = tensor.operand.dims;
  const int64_t run = local.empty() ? 1 : local.back();
  const int64_t runs = run == 0 ? 0 : tensor.operand.elements() / run;
  for (int64_t r = 0; r < runs; ++r) {
    int64_t rest = r, stride = local.empty() ? 1 : tensor.dims.back().size;
    int64_t global = local.empty() ? 0 : start.back();
    for (size_t d = local.size() - (local.empty() ? 0 : 1); d-- > 0;) {
      global += (start[d] + rest % local[d]) * stride;
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
    each_run(param, part_start(param, device_.mesh(), device_.id().rank),
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

GradientPart gradient_of(const Program& train, const RankDevice& device, const std::string& param) {
  const auto info = std::ranges::find(train.params, param, &TensorInfo::name);
  if (info == train.params.end()) return {};
  for (const Instr& instr : train.instrs) {
    if (instr.kind != "update" || instr.layout != static_cast<int32_t>(info->layout)) continue;
    const FlatLayout& layout = train.layouts[info->layout];
    const FlatPart mine = part_of(train, layout, layout.depth(), device.id().rank);
    const LeafPart part = leaf_in(layout.leaves[info->leaf], mine);
    const char* base = device.address(train, instr.in[0]);
    return {base + part.at * size_of(instr.in[0].dtype), part.first, part.count};
  }
  return {};
}

}  // namespace tenon
