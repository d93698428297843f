// Buckets: several parameters' memory that is reduced, normed, updated and gathered as one.
#include <fmt/format.h>

#include <algorithm>

#include "plan/verify/follower.h"

namespace tenon {
const FlatLayout* Follower::layout_of(const Instr& instr) const {
  const auto index = static_cast<size_t>(instr.layout);
  return instr.layout >= 0 && index < program_.layouts.size() ? &program_.layouts[index] : nullptr;
}

// Each leaf as a whole: out of the memory of the bucket, or of the part of it that is there.
Result<Content> Follower::bucket(const Operand& operand, int32_t index, size_t depth) const {
  const FlatLayout& layout = program_.layouts[static_cast<size_t>(index)];
  if (operand.elements() != most_at(program_.mesh, layout, depth))
    return refused(fmt::format("'{}' has not the elements of its bucket", operand.name));
  const ByteRange all = range(operand);
  if (depth > 0) {
    Content part = memory_.read(all);
    const bool fits = part.parts != nullptr && part.parts->layout == index && part.parts->depth == depth &&
                      part.parts->block.n == 0;
    if (!fits) return refused(fmt::format("'{}' is not cut as its bucket is", operand.name));
    for (const auto& [at, leaf] : part.parts->leaves) {
      if (leaf.known() && forms_[leaf.form].dtype != operand.dtype)
        return refused(fmt::format("'{}' is of another dtype", operand.name));
    }
    return part;
  }
  auto parts = std::make_shared<Parts>();
  parts->layout = index;
  parts->bytes = operand.bytes();
  const auto size = static_cast<uint64_t>(size_of(operand.dtype));
  for (const FlatLayout::Leaf& leaf : layout.leaves) {
    const uint64_t at = static_cast<uint64_t>(leaf.first) * size,
                   end = at + static_cast<uint64_t>(leaf.count) * size;
    if (end > operand.bytes()) return refused("a bucket has a leaf beyond its end");
    Content content = memory_.read({all.lo + at, all.lo + end});
    if (content.form != kNone && forms_[content.form].dtype != operand.dtype) content = {};
    parts->leaves.emplace_back(at, std::move(content));
  }
  return Content{{}, kNone, {}, std::move(parts)};
}

Status Follower::write_bucket(const Operand& operand, int32_t index, size_t depth, const Content& content) {
  const FlatLayout& layout = program_.layouts[static_cast<size_t>(index)];
  if (operand.elements() != most_at(program_.mesh, layout, depth))
    return refused(fmt::format("'{}' has not the elements of its bucket", operand.name));
  auto parts = std::make_shared<Parts>(*content.parts);
  parts->depth = depth;
  parts->bytes = operand.bytes();
  memory_.write(range(operand), Content{});
  if (depth > 0) {
    memory_.write(range(operand), {{}, kNone, {}, std::move(parts)});
    return {};
  }
  for (const auto& [at, leaf] : parts->leaves) {
    if (!leaf.known()) continue;
    const uint64_t lo = range(operand).lo + at;
    memory_.write(ByteRange{lo, lo + memory_.bytes_of(leaf)}, leaf);
  }
  return {};
}

// The gradient of a parameter: of all microbatches and ranks, and all that the model adds into it, once.
Status Follower::check_gradient(const std::string& param, const Content& grad) const {
  if (grad.form == kNone) return refused(fmt::format("'{}.grad' is not there", param));
  const Form& form = forms_[grad.form];
  if (!form.partials.empty())
    return refused(fmt::format("'{}.grad' is not summed over {}", param, forms_.names(form.partials)));
  if (!form.plain()) return refused(fmt::format("'{}.grad' is {}", param, forms_.text(grad.form)));
  const auto expected = expected_.params.find(param);
  if (expected == expected_.params.end())
    return refused(fmt::format("the model has no parameter '{}'", param));
  const Print& wanted = expected->second.grad;
  if (grad.print == wanted) return {};
  const std::string why = difference(shared_.reference, param, grad.print, wanted);
  return refused(
      fmt::format("'{}.grad' is not what the model makes{}", param, why.empty() ? "" : ": it " + why));
}

namespace {

// No chunk is cut, so that each is one member's.
Status check_chunks(const FlatLayout& layout, int64_t chunk) {
  for (int64_t cut : layout.cuts) {
    for (const FlatLayout::Leaf& leaf : layout.leaves) {
      const bool inside = leaf.first < cut && cut < leaf.first + leaf.count;
      if (chunk > 0 && inside && (cut - leaf.first) % chunk != 0)
        return refused("a bucket is cut within a chunk whose square is taken at once");
    }
  }
  return {};
}

}  // namespace

Status Follower::check_zeros(const FlatLayout& layout, const Operand& numbers) const {
  if (layout.depth() == 0) return {};
  for (const auto& [piece, there] : memory_.pieces(range(numbers))) {
    if (there.form == kNone || there.print != zeros_print())
      return refused("the numbers of other members' parts start with what was there before");
  }
  return {};
}

Result<FormId> Follower::form_of_sums(const FlatLayout& layout, const Form& leaf, int64_t count, bool alone) {
  Form sums = form_of(Dtype::f64, {{count, {}, 0, 1}});
  for (const DimForm& dim : leaf.dims)
    sums.partials.insert(sums.partials.end(), dim.axes.begin(), dim.axes.end());
  sums.partials.insert(sums.partials.end(), layout.axes.begin(), layout.axes.end());
  std::ranges::sort(sums.partials);
  if (alone) sums.alone = layout.axes;
  if (!forms_.sound(sums)) return refused("a bucket is cut by an axis that cuts its parameters");
  return forms_.id(sums);
}

// The squares of each leaf's gradient. Of a bucket in parts a rank has those of its own, beside the zeros
// that are there already.
Status Follower::norms(const Instr& instr) {
  const FlatLayout* layout = layout_of(instr);
  if (layout == nullptr || instr.in.size() != 1 || instr.out.size() != 1 || instr.attrs.size() != 1)
    return refused("norms are of one bucket");
  const int64_t chunk = attr_int(instr.attrs, "chunk", -1);
  const Operand& out = instr.out[0];
  TENON_CHECK(check_chunks(*layout, chunk));
  if (chunk != (shared_.reference.exact ? kExactGranule : 0) || out.dtype != Dtype::f64)
    return refused("its attributes do not fit its operands");
  TENON_TRY(const Content grads, bucket(instr.in[0], instr.layout, layout->depth()));
  TENON_CHECK(check_zeros(*layout, out));
  int64_t entry = 0;
  for (size_t l = 0; l < layout->leaves.size(); ++l) {
    const FlatLayout::Leaf& leaf = layout->leaves[l];
    const Content& grad = grads.parts->leaves[l].second;
    const std::string& name = leaf.param < program_.params.size() ? program_.params[leaf.param].name : "?";
    TENON_CHECK(check_gradient(name, grad));
    const int64_t entries = norm_entries(leaf, chunk);
    // Cuts are between chunks, as check_chunks() demands.
    TENON_TRY(const FormId form, form_of_sums(*layout, forms_[grad.form], entries, chunk > 0));
    const Print print = print_of(*find_op("sqnorm"), {}, std::span(&grad.print, 1), 0, {}, false);
    const uint64_t lo = range(out).lo + static_cast<uint64_t>(entry) * sizeof(double);
    memory_.write(ByteRange{lo, lo + static_cast<uint64_t>(entries) * sizeof(double)},
                  {print, form, {}, nullptr});
    entry += entries;
  }
  return entry == out.elements() ? Status() : refused("has not one entry for each gradient");
}

Status Follower::own_part(const Instr& instr) {
  const FlatLayout* layout = layout_of(instr);
  if (layout == nullptr || instr.in.size() != 1 || instr.out.size() != 1 || !instr.attrs.empty())
    return refused("a part is of one bucket");
  if (instr.in[0].dtype != instr.out[0].dtype) return refused("copies to another dtype");
  TENON_TRY(const Content all, bucket(instr.in[0], instr.layout, layout->param_depth));
  return write_bucket(instr.out[0], instr.layout, layout->depth(), all);
}

// What a step of the optimizer works on, which may be changed.
struct Follower::Updating {
  struct Leaf {
    std::string name;
    int group = 0;
    int64_t stats = 0;
    Print grad, scale;
    Content* param = nullptr;
    std::vector<std::pair<std::string, Content*>> states;  // by name

    // Of the statistics of all of it, before the step.
    Print print_of_stats() const {
      PrintHash hash("stats");
      hash.add(name).add(static_cast<uint64_t>(group)).add(grad).add(scale).add(param->print);
      for (const auto& [slot, state] : states) hash.add(slot).add(state->print);
      return hash.print();
    }
  };
  const FlatLayout& layout;
  std::vector<Content> tensors;  // copies: parameters, then state slots
  std::vector<Leaf> leaves = {};
};

// What the executor does with it: each leaf of the bucket by the optimizer of its group, with the slots of
// that group's state, which it finds by their names.
Result<Follower::Updating> Follower::updating(const Instr& instr) const {
  const FlatLayout* layout = layout_of(instr);
  constexpr auto kForm = "a step of the optimizer is of one bucket, with its gradients and a scale";
  if (layout == nullptr || instr.in.size() < 2 || !instr.attrs.empty()) return refused(kForm);
  const OptimizerOperands operands = optimizer_operands(instr);
  if (operands.tensors.empty()) return refused(kForm);
  TENON_TRY(const Content scale, whole(operands.scale));
  if (!forms_[scale.form].placement().is_replicated() || forms_[scale.form].dtype != Dtype::f64 ||
      !forms_[scale.form].dims.empty())
    return refused("the scale of an update is one number");
  TENON_TRY(const Content grads, bucket(operands.grad, instr.layout, layout->depth()));
  Updating out{*layout, {}};
  std::vector<std::shared_ptr<Parts>> parts;
  for (const Operand& operand : operands.tensors) {
    TENON_TRY(Content content, bucket(operand, instr.layout, layout->depth()));
    content.parts = parts.emplace_back(std::make_shared<Parts>(*content.parts));
    out.tensors.push_back(std::move(content));
  }
  for (size_t l = 0; l < layout->leaves.size(); ++l) {
    const FlatLayout::Leaf& leaf = layout->leaves[l];
    if (leaf.param >= program_.params.size()) return refused("a bucket has a parameter that is not there");
    const TensorInfo& info = program_.params[leaf.param];
    const auto group = static_cast<size_t>(leaf.group);
    if (!expected_.params.contains(info.name) || leaf.group < 0 ||
        group >= shared_.reference.optimizer.groups.size())
      return refused(fmt::format("'{}' is in no group of the optimizer", info.name));
    const Content& grad = grads.parts->leaves[l].second;
    Content& param = parts[0]->leaves[l].second;
    TENON_CHECK(check_gradient(info.name, grad));
    if (param.form == kNone) return refused(fmt::format("'{}' is not updated where it is", info.name));
    if (!(forms_[grad.form] == forms_[param.form])) {
      return refused(fmt::format("'{}', which is {}, would be updated with {}", info.name,
                                 forms_.text(param.form), forms_.text(grad.form)));
    }
    const OptimizerRule& rule = shared_.reference.optimizer.groups[group];
    out.leaves.push_back({info.name, leaf.group, rule.stats, grad.print, scale.print, &param, {}});
    for (const StateSlot& slot : rule.slots) {
      const Operand* found = state_of_slot(operands.tensors.subspan(1), slot.name, slot.dtype);
      const std::string name = state_name(info.name, shared_.reference.optimizer, slot);
      if (found == nullptr) return refused(fmt::format("'{}' is not updated where it is", name));
      Content& state = parts[static_cast<size_t>(found - operands.tensors.data())]->leaves[l].second;
      if (state.print != state_print(name))
        return refused(fmt::format("'{}' is not updated where it is", name));
      Form of_state = forms_[param.form];
      of_state.dtype = slot.dtype;
      if (!(forms_[state.form] == of_state))
        return refused(fmt::format("'{}' is not cut as '{}' is", name, info.name));
      out.leaves.back().states.emplace_back(name, &state);
    }
  }
  return out;
}

// What the optimizer wants to know of each leaf as a whole: a rank has the sums over its own part.
Status Follower::stats(const Instr& instr) {
  TENON_TRY(const Updating step, updating(instr));
  const Operand* out = optimizer_operands(instr).stats;
  if (out == nullptr || instr.out.size() != 1 || out->dtype != Dtype::f64)
    return refused("statistics are one vector of f64");
  TENON_CHECK(check_zeros(step.layout, *out));
  uint64_t at = range(*out).lo;
  for (const Updating::Leaf& leaf : step.leaves) {
    if (leaf.stats == 0) continue;
    TENON_TRY(const FormId form, form_of_sums(step.layout, forms_[leaf.param->form], leaf.stats, false));
    const uint64_t end = at + static_cast<uint64_t>(leaf.stats) * sizeof(double);
    if (end > range(*out).hi) return refused("has not the statistics of each parameter");
    memory_.write(ByteRange{at, end}, {leaf.print_of_stats(), form, {}, nullptr});
    at = end;
  }
  return at == range(*out).hi ? Status() : refused("has not the statistics of each parameter");
}

// An update reads those of the parameters, states and gradients that it works on itself.
Status Follower::check_stats(const Updating& step, const Operand& stats) const {
  uint64_t at = range(stats).lo;
  for (const Updating::Leaf& leaf : step.leaves) {
    if (leaf.stats == 0) continue;
    const uint64_t end = at + static_cast<uint64_t>(leaf.stats) * sizeof(double);
    if (end > range(stats).hi) return refused("lacks statistics");
    const Content there = memory_.read({at, end});
    const bool known =
        there.form != kNone && forms_[there.form].plain() && forms_[there.form].placement().is_replicated();
    if (!known || there.print != leaf.print_of_stats())
      return refused(fmt::format("'{}' is not updated with its own statistics, over all of it", leaf.name));
    at = end;
  }
  return at == range(stats).hi ? Status() : refused("has more statistics than it reads");
}

Status Follower::update(const Instr& instr) {
  TENON_TRY(const Updating step, updating(instr));
  const Operand* stats = optimizer_operands(instr).stats;
  const bool wanted = std::ranges::any_of(step.leaves, [](const auto& leaf) { return leaf.stats > 0; });
  if (instr.in.size() != (wanted ? 3 : 2)) return refused("has another number of operands than its kind");
  if (wanted) TENON_CHECK(check_stats(step, *stats));
  for (const Updating::Leaf& leaf : step.leaves) {
    for (const auto& [name, state] : leaf.states)
      state->print = update_print(name, leaf.group, leaf.grad, state->print, leaf.scale);
    leaf.param->print = update_print(leaf.name, leaf.group, leaf.grad, leaf.param->print, leaf.scale);
  }
  for (size_t i = 0; i < instr.out.size(); ++i)
    TENON_CHECK(write_bucket(instr.out[i], instr.layout, step.layout.depth(), step.tensors[i]));
  return {};
}

}  // namespace tenon
