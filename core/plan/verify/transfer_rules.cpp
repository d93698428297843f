#include "plan/verify/transfer_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/verify/checks.h"

namespace tenon {
namespace {

// Leaf by leaf; a leaf of which nothing is known stays so.
template <class Change>
Result<Content> each_leaf(const Content& content, Change change) {
  auto parts = std::make_shared<Parts>(*content.parts);
  for (auto& [at, leaf] : parts->leaves) {
    if (!leaf.known()) continue;
    TENON_TRY(leaf, change(leaf));
  }
  Content out = content;
  out.parts = std::move(parts);
  return out;
}

}  // namespace

// Zeros aside, the fixed tree adds logical shards of the batch: first those of a rank, then over the ranks,
// minor axes first, and nothing else in between. What one shard makes may have been summed before.
Result<Print> TransferRules::print_of_sum(const Content& content, const std::vector<AxisId>& axes) const {
  const Print& print = content.print;
  if (!exact_) return print;
  const Form& before = forms_[content.form];
  const auto zeros = [&](AxisId axis) { return std::ranges::count(before.alone, axis) > 0; };
  if (std::ranges::any_of(axes, zeros) && !std::ranges::all_of(axes, zeros))
    return refused(fmt::format("sums over {} at once, over some of which all members but one hold zeros",
                               forms_.names(axes)));
  std::vector<AxisId> owed;  // of the batch, major first
  for (AxisId axis : batch_) {
    if (before.partial_over(axis) && !zeros(axis)) owed.push_back(axis);
  }
  const bool of_batch = std::ranges::any_of(axes, [&](AxisId a) { return std::ranges::count(owed, a) > 0; });
  if (owed.empty() || (!of_batch && content.microbatch >= 0)) return print;
  const std::vector<AxisId> minor(owed.end() - static_cast<ptrdiff_t>(std::min(axes.size(), owed.size())),
                                  owed.end());
  if (!of_batch || axes != minor || !std::ranges::is_sorted(axes)) {
    return refused(
        fmt::format("sums over {} before the shards of the batch are summed over {}, in their order",
                    forms_.names(axes), forms_.names(owed)));
  }
  return axes.size() == owed.size() ? PrintHash("over shards").add(print).print() : print;
}

Result<Content> TransferRules::summed(const Content& content, const std::vector<AxisId>& axes) const {
  if (content.parts != nullptr)
    return each_leaf(content, [&](const Content& leaf) { return summed(leaf, axes); });
  Form form = forms_[content.form];
  for (AxisId axis : axes) {
    if (!form.partial_over(axis))
      return refused(fmt::format("is summed over {}, on which no rank has an addend of it: it is {}",
                                 forms_.names({axis}), forms_.text(content.form)));
  }
  if (form.block.n > 0 || !form.blocks.empty() || form.shift != 0)
    return refused("sums what is already a part of a sum");
  Content out = content;
  TENON_TRY(out.print, print_of_sum(content, axes));
  drop_partials(form, axes);
  out.form = forms_.id(form);
  return out;
}

// A form as that of a given member.
Status TransferRules::fix(Form& form, const std::vector<AxisId>& axes, int64_t member) const {
  if (form.shift != 0 || !form.blocks.empty()) return refused("moves what is on its way around a ring");
  const bool none =
      std::ranges::none_of(axes, [&](AxisId a) { return form.cut_by(a) || form.partial_over(a); });
  if (none && form.slab.axes.empty()) return {};
  const int64_t n = forms_.mesh().size(axes);
  if (!form.slab.axes.empty() && form.slab.axes == axes) {
    form.slab = {{}, member, n};
  } else if (const auto d = cut_last_by(form, axes)) {
    DimForm& dim = form.dims[*d];
    if (dim.of != 1) return refused("moves a part of a part");
    dim.axes.resize(dim.axes.size() - axes.size());
    dim.index = member;
    dim.of = n;
  } else if (partial_over_all(form, axes) && form.block.n == 0) {
    form.block = {axes, member, 1};
  } else {
    return refused(fmt::format("its bytes are not cut by {} last", forms_.names(axes)));
  }
  return {};
}

Result<Content> TransferRules::of_member(const Content& content, const std::vector<AxisId>& axes,
                                         int64_t member) const {
  if (content.form == kNone) return refused("moves what is not one value");
  Form form = forms_[content.form];
  TENON_CHECK(fix(form, axes, member));
  Content out = content;
  out.form = forms_.id(form);
  return out;
}

namespace {

// The part of a dim, or of the bytes, that is the first of n.
struct FirstPart {
  std::optional<size_t> dim;
  bool slab = false;
};

FirstPart first_part(const Form& form, int64_t n) {
  for (size_t d = 0; d < form.dims.size(); ++d) {
    if (form.dims[d].of == n && form.dims[d].index == 0) return {d, false};
  }
  return {std::nullopt, form.slab.of == n && form.slab.index == 0};
}

// Which is each rank's own from now on.
void make_own(Form& form, const FirstPart& part, const std::vector<AxisId>& axes) {
  if (part.slab) {
    form.slab = {axes, 0, 1};
    return;
  }
  DimForm& dim = form.dims[*part.dim];
  dim.of = 1;
  dim.axes.insert(dim.axes.end(), axes.begin(), axes.end());
}

}  // namespace

Result<Content> TransferRules::own_part(const Content& first, const std::vector<AxisId>& axes) const {
  if (first.form == kNone) return refused("shares out what is not one value");
  Form form = forms_[first.form];
  for (AxisId axis : axes) {
    if (form.cut_by(axis))
      return refused(fmt::format("shares out over {} what is cut by it", forms_.names({axis})));
  }
  const FirstPart part = first_part(form, forms_.mesh().size(axes));
  if (!part.dim && !part.slab)
    return refused("shares out what is not as many equal parts as there are members");
  make_own(form, part, axes);
  Content out = first;
  out.form = forms_.id(form);
  return out;
}

Result<Content> TransferRules::exchanged(const Content& first, const std::vector<AxisId>& axes,
                                         int64_t member) const {
  if (first.form == kNone) return refused("shares out what is not one value");
  Form form = forms_[first.form];
  const FirstPart part = first_part(form, forms_.mesh().size(axes));
  if (!part.dim && !part.slab)
    return refused("shares out what is not as many equal parts as there are members");
  TENON_CHECK(fix(form, axes, member));
  make_own(form, part, axes);
  Content out = first;
  out.form = forms_.id(form);
  return out;
}

Result<Content> TransferRules::shifted(const Content& content, const std::vector<AxisId>& axes,
                                       int64_t shift) const {
  if (content.form == kNone) return refused("passes on what is not one value");
  Form form = forms_[content.form];
  const auto cut_otherwise = [&](const DimForm& dim) {
    return std::ranges::any_of(dim.axes, [&](AxisId a) { return std::ranges::count(axes, a) > 0; }) &&
           dim.axes != axes;
  };
  const bool fits = std::ranges::none_of(form.dims, cut_otherwise) && cut_last_by(form, axes) &&
                    (form.ring.empty() || form.ring == axes) && form.block.n == 0 && form.slab.of == 1;
  if (!fits || !std::ranges::none_of(axes, [&](AxisId a) { return form.partial_over(a); }))
    return refused(fmt::format("passes on over {} what is not cut by that alone", forms_.names(axes)));
  form.shift = (form.shift + shift) % forms_.mesh().size(axes);
  form.ring = form.shift == 0 ? std::vector<AxisId>{} : axes;
  Content out = content;
  out.form = forms_.id(form);
  return out;
}

// Neighbours, as the fixed tree joins them: of what there is, the left one is the largest power of two.
Result<Block> TransferRules::joined(const Block& x, const Block& y) const {
  int64_t left = 1;
  while (left * 2 < x.n + y.n) left *= 2;
  if (x.axes != y.axes || x.lo + x.n != y.lo || x.n != left)
    return refused("adds addends of members that are no neighbours in the fixed tree");
  return Block{x.axes, x.lo, x.n + y.n};
}

Result<Content> TransferRules::added(const Content& x, const Content& y) const {
  if (x.parts != nullptr || y.parts != nullptr) return added_parts(x, y);
  if (!x.known() || !y.known()) return refused("adds what is not known");
  Form form = forms_[x.form];
  const Form& other = forms_[y.form];
  Content out = x;
  if (form.block.n > 0 || other.block.n > 0) {
    TENON_TRY(const Block block, joined(form.block, other.block));
    Form like = other;
    like.block = form.block;
    if (x.print != y.print || !(like == form)) return refused("adds addends of two different values");
    form.block = block;
    if (block.n == forms_.mesh().size(block.axes)) {
      form.block = {};
      TENON_TRY(out.print, print_of_sum(x, block.axes));
      drop_partials(form, block.axes);
    }
    out.form = forms_.id(form);
    return out;
  }
  if (x.form != y.form)
    return refused(fmt::format("adds {} to {}", forms_.text(y.form), forms_.text(x.form)));
  if (form.blocks.empty()) {
    out.print = plus(x.print, y.print, exact_);
    out.microbatch = joint_microbatch(x.microbatch, y.microbatch);
    return out;
  }
  if (x.print != y.print) return refused("adds blocks of two different values");
  out.blocks = x.blocks + y.blocks;
  if (out.blocks == all_blocks(forms_.mesh().size(form.blocks))) {
    form.blocks.clear();
    out.blocks = {};
    out.form = forms_.id(form);
  }
  return out;
}

Result<Content> TransferRules::added_parts(const Content& x, const Content& y) const {
  if (x.parts == nullptr || y.parts == nullptr) return refused("adds a part of a bucket to what is none");
  const Parts &a = *x.parts, &b = *y.parts;
  if (a.layout != b.layout || a.depth != b.depth || a.slab != b.slab || a.leaves.size() != b.leaves.size())
    return refused("adds parts of buckets that are cut differently");
  auto parts = std::make_shared<Parts>(a);
  const bool blocks = a.block.n > 0 || b.block.n > 0;
  if (blocks) {
    TENON_TRY(parts->block, joined(a.block, b.block));
  }
  for (size_t i = 0; i < a.leaves.size(); ++i) {
    auto& [at, leaf] = parts->leaves[i];
    const auto& [other_at, other] = b.leaves[i];
    if (at != other_at) return refused("adds parts of buckets that are cut differently");
    if (!leaf.known() || !other.known()) {
      leaf = {};
      continue;
    }
    if (!blocks) {
      TENON_TRY(leaf, added(leaf, other));
    } else if (!(leaf == other)) {
      return refused("adds addends of two different values");
    } else if (parts->block.n == forms_.mesh().size(parts->block.axes)) {
      TENON_TRY(leaf, summed(leaf, parts->block.axes));
    }
  }
  if (blocks && parts->block.n == forms_.mesh().size(parts->block.axes)) parts->block = {};
  Content out;
  out.parts = std::move(parts);
  return out;
}

}  // namespace tenon
