#include "plan/emit/layout.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "graph/ops.h"

namespace tenon {
namespace {

// A parameter's gradient on the way to its update.
struct Leaf {
  size_t index = 0;  // of JointGraph::leaves
  size_t param = 0;  // of JointGraph::params
  int64_t elements = 0, bytes = 0;
  int group = 0, stage = 0;
  std::vector<AxisId> reduce, norm_axes;
  std::vector<OpId> steps;
  Storage storage;
  bool tied = false;
};

std::vector<AxisId> sorted(std::vector<AxisId> axes) {
  std::sort(axes.begin(), axes.end());
  return axes;
}

std::vector<AxisId> sharded_axes(const Placement& placement) {
  std::vector<AxisId> out;
  for (const auto& dim : placement.dims) out.insert(out.end(), dim.begin(), dim.end());
  return sorted(out);
}

// The collectives from a leaf to the op that reads the whole gradient, in order.
class Steps {
 public:
  explicit Steps(const Graph& graph) : graph_(graph), of_(graph.values().size(), kNone) {
    for (OpId id = 0; id < graph.ops().size(); ++id) {
      const Op& op = graph.op(id);
      if (op.phase == Phase::step && reshard_of(*op.def) != TransferKind::none) of_[op.in[0]] = id;
    }
  }
  std::vector<OpId> from(ValueId grad) const {
    std::vector<OpId> out;
    for (OpId id = of_[grad]; id != kNone; id = of_[graph_.op(id).out[0]]) out.push_back(id);
    return out;
  }

 private:
  const Graph& graph_;
  std::vector<OpId> of_;
};

// Cut points near equal shares, at legal places: multiples of the granule within a leaf, and where leaves
// begin. So a leaf lies aligned in its part, too. Members beyond the granules that there are have nothing.
std::vector<int64_t> cut(const FlatLayout& layout, int64_t members, int64_t granule) {
  auto legal = [&, i = size_t{0}](int64_t at) mutable {  // asked with growing `at`
    for (; i < layout.leaves.size(); ++i) {
      const FlatLayout::Leaf& leaf = layout.leaves[i];
      const int64_t next = i + 1 < layout.leaves.size() ? layout.leaves[i + 1].first : layout.elements;
      if (at >= next) continue;
      const int64_t inside = granule == 0 ? 0 : (at - leaf.first + granule / 2) / granule * granule;
      return inside < leaf.count ? leaf.first + inside : next;
    }
    return layout.elements;
  };
  std::vector<int64_t> cuts{0};
  for (int64_t member = 1; member < members; ++member) {
    // elements * member / members, which may be beyond 64 bits before it is divided
    const int64_t at = layout.elements / members * member + layout.elements % members * member / members;
    cuts.push_back(std::max(legal(at), cuts.back()));
  }
  cuts.push_back(layout.elements);
  return cuts;
}

class Planner {
 public:
  Planner(const JointGraph& train, const Mesh& mesh, const std::vector<int>& owner,
          const std::vector<int>& group_of_param, const LayoutOptions& options)
      : train_(train),
        graph_(train.graph),
        mesh_(mesh),
        owner_(owner),
        groups_(group_of_param),
        options_(options),
        steps_(train.graph) {}

  Result<ParamPlan> run() {
    const auto classes = static_cast<size_t>(*std::max_element(owner_.begin(), owner_.end()) + 1);
    plan_.params.resize(classes);
    plan_.buckets.resize(classes);
    plan_.holders.resize(train_.params.size());
    find_holders();
    for (size_t i = 0; i < train_.leaves.size(); ++i) {
      TENON_TRY(Leaf leaf, leaf_at(i));
      for (int holder : plan_.holders[leaf.param]) add(static_cast<size_t>(holder), leaf);
    }
    for (auto& buckets : plan_.buckets) {
      for (Bucket& bucket : buckets) finish(bucket);
    }
    return std::move(plan_);
  }

 private:
  // A parameter lives with every stage that reads it; its first reader's class owns it.
  void find_holders() {
    for (size_t i = 0; i < train_.params.size(); ++i) param_of_[train_.params[i]] = i;
    for (const Op& op : graph_.ops()) {
      if (op.phase == Phase::step) continue;
      for (ValueId id : op.in) {
        const auto it = param_of_.find(id);
        if (it == param_of_.end()) continue;
        auto& holders = plan_.holders[it->second];
        const int reader = owner_[static_cast<size_t>(op.stage)];
        if (std::ranges::count(holders, reader) == 0) holders.push_back(reader);
      }
    }
    for (size_t i = 0; i < plan_.holders.size(); ++i) {
      for (int holder : plan_.holders[i]) plan_.params[static_cast<size_t>(holder)].push_back(i);
    }
  }

  Result<Leaf> leaf_at(size_t index) {
    const LeafGrad& grad = train_.leaves[index];
    const Value& value = graph_.value(grad.grad);
    const Value& param = graph_.value(grad.param);
    TENON_TRY(const Dims local, local_dims(param.dims, param.placement, mesh_));
    Leaf leaf;
    leaf.index = index;
    leaf.param = param_of_.at(grad.param);
    leaf.elements = tenon::elements(local);
    leaf.bytes = leaf.elements * size_of(value.dtype);
    leaf.group = groups_[leaf.param];
    leaf.stage = graph_.op(value.producer).stage;
    leaf.norm_axes = sharded_axes(param.placement);
    leaf.tied = plan_.holders[leaf.param].size() > 1;
    leaf.storage = param.storage;
    const std::vector<OpId> steps = steps_.from(grad.grad);
    const bool plain = std::ranges::all_of(
        steps, [&](OpId id) { return reshard_of(*graph_.op(id).def) == TransferKind::all_reduce; });
    if (plain)
      for (OpId id : steps)
        leaf.reduce.insert(leaf.reduce.end(), graph_.op(id).axes.begin(), graph_.op(id).axes.end());
    else
      leaf.steps = steps;
    leaf.reduce = sorted(leaf.reduce);
    return leaf;
  }

  // Over which a leaf's storage is cut: only axes over which its gradient is summed count. Those that cut the
  // parameter itself come first, and how many they are.
  static std::pair<std::vector<AxisId>, size_t> cut_axes_of(const Leaf& leaf) {
    const Storage& storage = leaf.storage;
    if (storage.level == 0) return {};
    std::vector<AxisId> out;
    for (AxisId axis : leaf.reduce)
      if (std::ranges::count(storage.axes, axis) > 0) out.push_back(axis);
    const auto rest = std::stable_partition(out.begin(), out.end(), [&](AxisId axis) {
      return storage.level == 3 && (storage.within.empty() || std::ranges::count(storage.within, axis) > 0);
    });
    return {out, static_cast<size_t>(rest - out.begin())};
  }

  // Into the open bucket of its kind, or a new one.
  void add(size_t klass, const Leaf& leaf) {
    const auto [cut_axes, param_depth] = cut_axes_of(leaf);
    const bool alone = leaf.tied || !leaf.steps.empty();
    const int level = cut_axes.empty() ? 0 : leaf.storage.level;
    const auto key = std::tuple(klass, leaf.stage, leaf.reduce, cut_axes, leaf.norm_axes, level, param_depth);
    auto& buckets = plan_.buckets[klass];
    const auto limit = static_cast<int64_t>(options_.bucket_bytes);
    const auto bytes = static_cast<int64_t>(aligned(static_cast<uint64_t>(leaf.bytes)));
    const int64_t size = leaf.bytes / std::max<int64_t>(leaf.elements, 1);
    const auto it = open_.find(key);
    const bool fits = it != open_.end() && buckets[it->second].layout.elements * size + bytes <= limit;
    const size_t at = !alone && fits ? it->second : buckets.size();
    if (at == buckets.size()) {
      Bucket& made = buckets.emplace_back();
      made.reduce = leaf.reduce;
      made.norm_axes = leaf.norm_axes;
      made.steps = leaf.steps;
      made.tied = leaf.tied;
      made.owner = plan_.holders[leaf.param][0] == static_cast<int>(klass);
      made.layout.level = level;
      made.layout.axes = cut_axes;
      made.layout.param_depth = param_depth;
      if (!alone) open_[key] = at;
    }
    Bucket& bucket = buckets[at];
    const auto& params = plan_.params[klass];
    const auto local = std::ranges::lower_bound(params, leaf.param) - params.begin();
    bucket.leaves.push_back(leaf.index);
    bucket.layout.leaves.push_back(
        {static_cast<uint32_t>(local), bucket.layout.elements, leaf.elements, leaf.group});
    bucket.layout.elements += bytes / std::max<int64_t>(size, 1);
  }

  // Pads a bucket to whole granules, and cuts it. Where there are more members than granules some have
  // nothing. A leaf that is resharded by steps of its own is what they make of it, and no more.
  void finish(Bucket& bucket) const {
    FlatLayout& layout = bucket.layout;
    if (!bucket.steps.empty()) {
      layout.elements = layout.leaves.front().count;
      layout.cuts = {0, layout.elements};
      return;
    }
    const int64_t step = kElementGranule * (options_.equal_parts ? mesh_.size(bucket.reduce) : 1);
    layout.elements = (layout.elements + step - 1) / step * step;
    layout.cuts = {0, layout.elements};
    if (layout.axes.empty()) return;
    const int64_t granule = options_.exact && options_.granule > 0 ? kExactGranule : options_.granule;
    layout.cuts = cut(layout, mesh_.size(layout.axes), granule);
  }

  const JointGraph& train_;
  const Graph& graph_;
  const Mesh& mesh_;
  const std::vector<int>& owner_;
  const std::vector<int>& groups_;
  const LayoutOptions& options_;
  const Steps steps_;
  ParamPlan plan_;
  std::unordered_map<ValueId, size_t> param_of_;  // of JointGraph::params
  using Key =
      std::tuple<size_t, int, std::vector<AxisId>, std::vector<AxisId>, std::vector<AxisId>, int, size_t>;
  std::map<Key, size_t> open_;
};

}  // namespace

Result<ParamPlan> plan_params(const JointGraph& train, const Mesh& mesh, const std::vector<int>& owner,
                              const std::vector<int>& group_of_param, const LayoutOptions& options) {
  return Planner(train, mesh, owner, group_of_param, options).run();
}

}  // namespace tenon
