// Transfers: what each member's bytes are behind them.
#include <fmt/format.h>

#include <algorithm>

#include "plan/verify/follower.h"

namespace tenon {
namespace {

// The first of equal parts, if the others are the others.
Result<Content> first_of(Forms& forms, const std::vector<Content>& parts) {
  const auto n = static_cast<int64_t>(parts.size());
  if (parts[0].form == kNone) return refused("shares out what is not one value");
  Form expected = forms[parts[0].form];
  const auto dim =
      std::ranges::find_if(expected.dims, [n](const DimForm& d) { return d.of == n && d.index == 0; });
  const bool slab = dim == expected.dims.end();
  if (slab && (expected.slab.of != n || expected.slab.index != 0))
    return refused("what it shares out is not as many equal parts as there are members");
  for (int64_t i = 0; i < n; ++i) {
    const Content& one = parts[static_cast<size_t>(i)];
    (slab ? expected.slab.index : dim->index) = i;
    const bool same = one.form != kNone && one.print == parts[0].print && one.blocks == parts[0].blocks &&
                      forms[one.form] == expected;
    if (!same) return refused("what it shares out is not the parts of one value in their order");
  }
  return parts[0];
}

}  // namespace

Status Follower::transfer(const Instr& instr, TransferKind kind) {
  if (instr.reduction != Reduction::sum) return refused("reduces by another operation than the sum");
  if (instr.accumulate || !instr.attrs.empty() || instr.offset_step != 0)
    return refused("is told more than a transfer does");
  const bool classes = std::ranges::count(instr.axes, program_.pipeline_axis) > 0;
  if (classes) return handed(instr, kind);
  switch (kind) {
    case TransferKind::all_reduce: return all_reduce(instr);
    case TransferKind::reduce_scatter: return reduce_scatter(instr);
    case TransferKind::all_gather: return all_gather(instr);
    case TransferKind::all_to_all: return all_to_all(instr);
    case TransferKind::permute: return permute(instr);
    default: return refused("is between ranks that run one program, each of which would send the same");
  }
}

// Over the ranks, as numbers of the dtype that the operand says.
Result<Content> Follower::summed(const Content& content, const Instr& instr) const {
  const auto other = [&](const Content& one) {
    return one.form != kNone && forms_[one.form].dtype != instr.in[0].dtype;
  };
  const bool any = content.parts
                       ? std::ranges::any_of(content.parts->leaves, other,
                                             [](const auto& leaf) -> const Content& { return leaf.second; })
                       : other(content);
  if (any) return refused(fmt::format("adds up '{}' as numbers of another dtype", instr.in[0].name));
  return shared_.transfers.summed(content, instr.axes);
}

Status Follower::all_reduce(const Instr& instr) {
  const ByteRange from = range(instr.in[0]), to = range(instr.out[0]);
  if (const Content one = memory_.read(from); one.known()) {
    TENON_TRY(const Content sum, summed(one, instr));
    memory_.write(to, sum);
    return {};
  }
  Memory::Pieces pieces = memory_.pieces(from);
  TENON_CHECK(
      change_each(pieces, [&](const ByteRange&, const Content& content) { return summed(content, instr); }));
  memory_.write(to, pieces);
  return {};
}

// The equal parts of what a transfer shares out, one for each member: the first, which stands for all.
Result<Content> Follower::joint_parts(const Instr& instr) const {
  const auto n = static_cast<uint64_t>(program_.mesh.size(instr.axes));
  const ByteRange all = range(instr.in[0]);
  const uint64_t bytes = (all.hi - all.lo) / n;
  std::vector<Content> parts;
  for (uint64_t i = 0; i < n; ++i)
    parts.push_back(memory_.read({all.lo + i * bytes, all.lo + (i + 1) * bytes}));
  return first_of(forms_, parts);
}

Status Follower::reduce_scatter(const Instr& instr) {
  if (const FlatLayout* layout = layout_of(instr)) {
    const auto depths = depths_of(*layout, instr.axes);
    if (!depths) return refused("scatters a bucket over axes that do not cut it");
    TENON_TRY(const Content all, bucket(instr.in[0], instr.layout, depths->outer));
    TENON_TRY(const Content sum, summed(all, instr));
    return write_bucket(instr.out[0], instr.layout, depths->inner, sum);
  }
  TENON_TRY(const Content first, joint_parts(instr));
  TENON_TRY(const Content sum, summed(first, instr));
  TENON_TRY(const Content mine, shared_.transfers.own_part(sum, instr.axes));
  return write(instr.out[0], mine);
}

Status Follower::all_gather(const Instr& instr) {
  if (const FlatLayout* layout = layout_of(instr)) {
    const auto depths = depths_of(*layout, instr.axes);
    if (!depths) return refused("gathers a bucket over axes that do not cut it");
    TENON_TRY(const Content part, bucket(instr.in[0], instr.layout, depths->inner));
    for (const auto& [at, leaf] : part.parts->leaves) {
      const bool summed =
          !leaf.known() || std::ranges::none_of(instr.axes, [&, form = leaf.form](AxisId axis) {
            return forms_[form].partial_over(axis);
          });
      if (!summed) return refused("gathers parts of what is not summed yet");
    }
    return write_bucket(instr.out[0], instr.layout, depths->outer, part);
  }
  const Content mine = memory_.read(range(instr.in[0]));
  if (mine.parts != nullptr) return regather_slabs(instr, mine);
  const auto n = static_cast<uint64_t>(program_.mesh.size(instr.axes));
  const ByteRange to = range(instr.out[0]);
  const uint64_t bytes = (to.hi - to.lo) / n;
  Memory::Pieces pieces;
  for (uint64_t i = 0; i < n; ++i) {
    TENON_TRY(Content one, shared_.transfers.of_member(mine, instr.axes, static_cast<int64_t>(i)));
    pieces.emplace_back(ByteRange{i * bytes, (i + 1) * bytes}, std::move(one));
  }
  memory_.write(to, pieces);
  if (const Content all = memory_.read(to); all.known()) memory_.write(to, all);
  return {};
}

// Each member gets, of each, the part that is its own.
Status Follower::all_to_all(const Instr& instr) {
  const auto n = static_cast<uint64_t>(program_.mesh.size(instr.axes));
  const auto first = joint_parts(instr);
  if (!first.ok()) return share_slabs(instr);
  const ByteRange to = range(instr.out[0]);
  const uint64_t bytes = (to.hi - to.lo) / n;
  Memory::Pieces pieces;
  for (uint64_t i = 0; i < n; ++i) {
    TENON_TRY(Content one, shared_.transfers.exchanged(*first, instr.axes, static_cast<int64_t>(i)));
    pieces.emplace_back(ByteRange{i * bytes, (i + 1) * bytes}, std::move(one));
  }
  memory_.write(to, pieces);
  if (const Content all = memory_.read(to); all.known()) memory_.write(to, all);
  return {};
}

// Of the memory of a bucket of addends, cut regardless of its leaves: each member gets each one's addend of
// its own part.
Status Follower::share_slabs(const Instr& instr) {
  const auto n = program_.mesh.size(instr.axes);
  auto parts = std::make_shared<Parts>();
  parts->slab = instr.axes;
  for (const auto& [piece, content] : memory_.pieces(range(instr.in[0]))) {
    const bool addend = content.form != kNone && partial_over_all(forms_[content.form], instr.axes) &&
                        forms_[content.form].plain();
    if (addend) parts->leaves.emplace_back(piece.lo, content);
  }
  if (parts->leaves.empty())
    return refused("shares out what is not a sum over its axes, and not equal parts of one value");
  const ByteRange to = range(instr.out[0]);
  parts->bytes = (to.hi - to.lo) / static_cast<uint64_t>(n);
  Memory::Pieces pieces;
  for (int64_t i = 0; i < n; ++i) {
    auto one = std::make_shared<Parts>(*parts);
    one->block = {instr.axes, i, 1};
    const auto at = static_cast<uint64_t>(i) * parts->bytes;
    pieces.emplace_back(ByteRange{at, at + parts->bytes}, Content{{}, kNone, {}, std::move(one)});
  }
  memory_.write(to, pieces);
  return {};
}

Status Follower::regather_slabs(const Instr& instr, const Content& part) {
  const ByteRange to = range(instr.out[0]);
  if (part.parts->slab != instr.axes || part.parts->block.n != 0)
    return refused("gathers parts of a bucket that are not cut by its axes");
  memory_.write(to, Content{});
  for (const auto& [at, leaf] : part.parts->leaves) {
    const uint64_t lo = to.lo + at;
    if (leaf.known()) memory_.write(ByteRange{lo, lo + memory_.bytes_of(leaf)}, leaf);
  }
  return {};
}

Status Follower::permute(const Instr& instr) {
  const Content content = memory_.read(range(instr.in[0]));
  const int64_t n = program_.mesh.size(instr.axes);
  TENON_TRY(const Content there, shared_.transfers.shifted(content, instr.axes, ((instr.peer % n) + n) % n));
  return write(instr.out[0], there);
}

}  // namespace tenon
