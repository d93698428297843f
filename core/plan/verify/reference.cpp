#include "plan/verify/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "plan/verify/content.h"
#include "plan/verify/kernel_rules.h"

namespace tenon {
namespace {

// Fingerprints of all values of a graph, a microbatch at a time.
class Prints {
 public:
  Prints(const Graph& graph, bool ordered) : graph_(graph), ordered_(ordered), free_(graph.ops().size()) {
    for (OpId id = 0; id < graph.ops().size(); ++id) {
      const Op& op = graph.op(id);
      for (size_t k = 0; k < op.out.size(); ++k) {
        auto& sizes = free_[id].emplace_back();
        if (op.rule == nullptr) continue;
        for (size_t d : free_dims(*op.rule, k)) sizes.push_back(graph.value(op.out[k]).dims[d].size);
      }
    }
  }

  std::vector<Print> of(int64_t microbatch) const {
    std::vector<Print> out(graph_.values().size());
    for (ValueId id = 0; id < out.size(); ++id) {
      const Value& value = graph_.value(id);
      if (value.producer != kNone) continue;
      out[id] = value.role == Role::param ? param_print(value.name) : input_print(value.name, microbatch);
    }
    for (OpId id = 0; id < graph_.ops().size(); ++id) {
      const Op& op = graph_.op(id);
      if (op.phase == Phase::step) continue;
      for (size_t k = 0; k < op.out.size(); ++k) {
        out[op.out[k]] = made(id, k, out);
        if (!op.acc.empty()) out[op.out[k]] = plus(out[op.acc[k]], out[op.out[k]], ordered_);
      }
    }
    return out;
  }

  // What an op alone makes, of what is there.
  Print made(OpId id, size_t k, const std::vector<Print>& there) const {
    const Op& op = graph_.op(id);
    std::vector<Print> in;
    for (ValueId value : op.in) in.push_back(there[value]);
    return print_of(*op.def, op.attrs, in, k, free_[id][k], ordered_);
  }

 private:
  const Graph& graph_;
  const bool ordered_;
  std::vector<std::vector<std::vector<int64_t>>> free_;  // by op and output
};

// A sum over microbatches, as Fold adds them.
Print fold(std::span<const Print> prints, bool ordered) {
  if (prints.size() == 1) return prints[0];
  size_t half = 1;
  while (half * 2 < prints.size()) half *= 2;
  return plus(fold(prints.first(half), ordered), fold(prints.subspan(half), ordered), ordered);
}

// The ops that add into a gradient on one class, first to last.
struct Chain {
  int klass = 0;
  std::vector<std::pair<OpId, size_t>> ops;
  std::vector<Print> sums = {};  // of each microbatch
};

class Expecting {
 public:
  Expecting(const Reference& reference, bool shared)
      : reference_(reference),
        joint_(*reference.joint),
        graph_(reference.joint->graph),
        wrap_(shared && reference.exact),
        prints_(graph_, reference.exact) {
    find_chains();
    find_crossing();
    for (int64_t mb = 0; mb < reference.microbatches; ++mb) add(prints_.of(mb));
  }

  Expected run() {
    Expected out;
    out.real = graph_.real;
    for (size_t i = 0; i < joint_.params.size(); ++i) {
      const Value& value = graph_.value(joint_.params[i]);
      const int group = reference_.training ? reference_.optimizer.group_of_param[i] : 0;
      out.params[value.name] = {&value, group, {}, param_print(value.name), nullptr};
    }
    for (const auto& [name, id] : joint_.outputs) {
      if (sums_.contains(id)) out.outputs[name] = over_ranks(fold(sums_.at(id), reference_.exact));
    }
    out.crossing = crossing_;
    if (reference_.training) expect_update(out);
    return out;
  }

 private:
  // A parameter's first reader's class comes first: the others' sums are added to its.
  void find_chains() {
    if (!reference_.training) return;
    std::map<ValueId, std::vector<int>> holders;
    for (const Op& op : graph_.ops()) {
      if (op.phase == Phase::step) continue;
      for (ValueId id : op.in) {
        if (graph_.value(id).role != Role::param) continue;
        auto& of_param = holders[id];
        const int klass = reference_.owner[static_cast<size_t>(op.stage)];
        if (std::ranges::count(of_param, klass) == 0) of_param.push_back(klass);
      }
    }
    for (const LeafGrad& leaf : joint_.leaves) chains_.push_back(chains_of(leaf, holders[leaf.param]));
  }

  std::vector<Chain> chains_of(const LeafGrad& leaf, const std::vector<int>& holders) const {
    std::vector<Chain> out;
    for (int klass : holders) out.push_back({klass, {}});
    for (ValueId id = leaf.grad; id != kNone;) {
      const OpId producer = graph_.value(id).producer;
      const Op& op = graph_.op(producer);
      const auto k = static_cast<size_t>(std::ranges::find(op.out, id) - op.out.begin());
      const int klass = reference_.owner[static_cast<size_t>(op.stage)];
      const auto chain = std::ranges::find(out, klass, &Chain::klass);
      chain->ops.insert(chain->ops.begin(), {producer, k});
      id = op.acc.empty() ? kNone : op.acc[k];
    }
    std::erase_if(out, [](const Chain& chain) { return chain.ops.empty(); });
    return out;
  }

  // What stages read from each other within a microbatch.
  void find_crossing() {
    std::vector<bool> of_microbatch(graph_.values().size());
    for (ValueId id : graph_.with_role(Role::input)) of_microbatch[id] = graph_.value(id).name != "step";
    const auto is_of_microbatch = [&](ValueId id) { return id != kNone && of_microbatch[id]; };
    for (const Op& op : graph_.ops()) {
      const bool made =
          std::ranges::any_of(op.in, is_of_microbatch) || std::ranges::any_of(op.acc, is_of_microbatch);
      for (ValueId id : op.out) of_microbatch[id] = made;
    }
    for (const auto& [placed, handed] : reference_.handed) {
      const OpId maker = graph_.value(handed.value).producer;
      if (maker != kNone && graph_.op(maker).phase != Phase::step)
        crossing_[handed.value].of_microbatch = of_microbatch[handed.value];
    }
  }

  // Of values that are read once per step: one fingerprint for each microbatch.
  void add(const std::vector<Print>& prints) {
    for (auto& [id, value] : crossing_) value.prints.push_back(prints[id]);
    for (const auto& [name, id] : joint_.outputs) {
      const OpId producer = graph_.value(id).producer;
      if (producer != kNone && graph_.op(producer).phase != Phase::step) sums_[id].push_back(prints[id]);
    }
    for (std::vector<Chain>& chains : chains_) {
      for (Chain& chain : chains) {
        Print sum;
        for (size_t i = 0; i < chain.ops.size(); ++i) {
          const Print one = prints_.made(chain.ops[i].first, chain.ops[i].second, prints);
          sum = i == 0 ? one : plus(sum, one, reference_.exact);
        }
        chain.sums.push_back(sum);
      }
    }
  }

  Print over_ranks(const Print& sum) const { return wrap_ ? shards_print(sum) : sum; }

  Print gradient_of(const std::vector<Chain>& chains) const {
    Print sum;
    for (size_t i = 0; i < chains.size(); ++i) {
      const Print one = over_ranks(fold(chains[i].sums, reference_.exact));
      sum = i == 0 ? one : plus(sum, one, reference_.exact);
    }
    return sum;
  }

  void expect_update(Expected& out) const {
    Print squares;
    for (size_t i = 0; i < joint_.leaves.size(); ++i) {
      const Print grad = gradient_of(chains_[i]);
      Expected::Param& param = out.params.at(graph_.value(joint_.leaves[i].param).name);
      param.grad = grad;
      for (const Chain& chain : chains_[i])
        param.addends[chain.klass] = over_ranks(fold(chain.sums, reference_.exact));
      squares = squares + print_of(*find_op("sqnorm"), {}, std::span(&grad, 1), 0, {}, false);
    }
    const Op& clip = graph_.op(graph_.value(joint_.outputs.at("scale")).producer);
    out.squares = squares;
    const Print in[] = {squares, out.outputs.at("count")};
    for (size_t k = 0; k < clip.out.size(); ++k)
      out.outputs[graph_.value(clip.out[k]).name] = print_of(*clip.def, clip.attrs, in, k, {}, false);
    for (auto& [name, param] : out.params) {
      param.after = update_print(name, param.group, param.grad, param_print(name), out.outputs.at("scale"));
      param.slots = &reference_.optimizer.groups[static_cast<size_t>(param.group)].slots;
    }
  }

  const Reference& reference_;
  const JointGraph& joint_;
  const Graph& graph_;
  const bool wrap_;
  const Prints prints_;
  std::vector<std::vector<Chain>> chains_;  // by leaf
  std::map<ValueId, std::vector<Print>> sums_;
  std::map<ValueId, Expected::Crossing> crossing_;
};

}  // namespace

HandedValues handed_values(const JointGraph& placed) {
  const Graph& graph = placed.graph;
  HandedValues out;
  const auto add = [&](ValueId id) -> Handed& {
    return out.try_emplace(id, Handed{placed.unplaced_ids[id], graph.value(id).placement}).first->second;
  };
  for (const Op& op : graph.ops()) {
    if (op.phase == Phase::step) continue;
    for (ValueId id : op.in) {
      const OpId maker = graph.value(id).producer;
      if (maker != kNone && graph.op(maker).phase != Phase::step && graph.op(maker).stage != op.stage)
        add(id);
    }
  }
  for (const auto& [name, id] : placed.outputs) add(id);
  for (ValueId id : placed.params) add(id);
  for (const LeafGrad& leaf : placed.leaves) add(leaf.param).gradient = graph.value(leaf.grad).placement;
  return out;
}

std::string serialize(const HandedValues& handed, const Mesh& mesh) {
  std::string out;
  for (const auto& [placed, one] : handed)
    out += fmt::format("{} {} {} / {}\n", placed, one.value, text(one.placement, {}, mesh),
                       text(one.gradient, {}, mesh));
  return out;
}

Print input_print(const std::string& name, int64_t microbatch) {
  const int64_t which = name == "step" ? 0 : microbatch;  // one for all of them
  return PrintHash("input").add(name).add(static_cast<uint64_t>(which)).print();
}

Print param_print(const std::string& name) { return PrintHash("param").add(name).print(); }
Print state_print(const std::string& name) { return PrintHash("state").add(name).print(); }
Print shards_print(const Print& sum) { return PrintHash("over shards").add(sum).print(); }

Print update_print(const std::string& tensor, int group, const Print& grad, const Print& param,
                   const Print& scale) {
  return PrintHash("update")
      .add(tensor)
      .add(static_cast<uint64_t>(group))
      .add(grad)
      .add(param)
      .add(scale)
      .print();
}

Expected expect(const Reference& reference, bool shared) { return Expecting(reference, shared).run(); }

std::string difference(const Reference& reference, const std::string& param, const Print& found,
                       const Print& wanted) {
  const Graph& graph = reference.joint->graph;
  const Prints prints(graph, reference.exact);
  for (int64_t mb = 0; mb < reference.microbatches; ++mb) {
    const std::vector<Print> there = prints.of(mb);
    for (OpId id = 0; id < graph.ops().size(); ++id) {
      const Op& op = graph.op(id);
      for (size_t k = 0; k < op.grad_out.size(); ++k) {
        if (graph.value(op.grad_out[k]).name != param) continue;
        const Print addend = prints.made(id, k, there);
        const std::string what = fmt::format("'{}' of microbatch {}", op.def->kind, mb);
        if (found + addend == wanted) return "lacks " + what;
        if (wanted + addend == found) return "has " + what + " 2 times";
      }
    }
  }
  return "";
}

std::map<std::string, Print> values_of(const Reference& reference, int64_t microbatch) {
  const Graph& graph = reference.joint->graph;
  const std::vector<Print> prints = Prints(graph, reference.exact).of(microbatch);
  std::map<std::string, Print> out;
  std::set<std::string> several;  // a gradient to which several ops contribute has its name at each step
  for (ValueId id = 0; id < prints.size(); ++id) {
    if (!out.emplace(graph.value(id).name, prints[id]).second) several.insert(graph.value(id).name);
  }
  for (const std::string& name : several) out.erase(name);
  return out;
}

}  // namespace tenon
