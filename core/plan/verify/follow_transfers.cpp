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
  if (classes) return between_classes(instr, kind);
  switch (kind) {
    case TransferKind::all_reduce: return all_reduce(instr);
    case TransferKind::reduce_scatter: return reduce_scatter(instr);
    case TransferKind::all_gather: return all_gather(instr);
    case TransferKind::all_to_all: return all_to_all(instr);
    case TransferKind::permute: return permute(instr);
    default: return refused("is between ranks that run one program, each of which would send the same");
  }
}

Status Follower::all_reduce(const Instr& instr) {
  const ByteRange from = range(instr.in[0]), to = range(instr.out[0]);
  if (const Content one = memory_.read(from); one.known()) {
    TENON_TRY(const Content sum, shared_.transfers.summed(one, instr.axes));
    memory_.write(to, sum);
    return {};
  }
  Memory::Pieces pieces = memory_.pieces(from);
  TENON_CHECK(change_each(pieces, [&](const ByteRange&, const Content& content) {
    return shared_.transfers.summed(content, instr.axes);
  }));
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
    TENON_TRY(const Content sum, shared_.transfers.summed(all, instr.axes));
    return write_bucket(instr.out[0], instr.layout, depths->inner, sum);
  }
  TENON_TRY(const Content first, joint_parts(instr));
  TENON_TRY(const Content sum, shared_.transfers.summed(first, instr.axes));
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

// -- between classes --------------------------------------------------------------------------------

// A part of a bucket, as this class numbers its buckets.
Result<Content> Follower::as_here(const Program& from, const Content& content) const {
  if (content.parts == nullptr || content.parts->layout < 0) return content;
  const FlatLayout& theirs = from.layouts[static_cast<size_t>(content.parts->layout)];
  const auto alike = [&](const FlatLayout& mine) {
    return mine.elements == theirs.elements && mine.axes == theirs.axes && mine.cuts == theirs.cuts &&
           std::ranges::equal(mine.leaves, theirs.leaves, [&](const auto& a, const auto& b) {
             return a.first == b.first && a.count == b.count &&
                    program_.params[a.param].name == from.params[b.param].name;
           });
  };
  const auto mine = std::ranges::find_if(program_.layouts, alike);
  if (mine == program_.layouts.end()) return refused("comes from a bucket that is not cut so here");
  auto parts = std::make_shared<Parts>(*content.parts);
  parts->layout = static_cast<int32_t>(mine - program_.layouts.begin());
  Content out = content;
  out.parts = std::move(parts);
  return out;
}

Status Follower::take(const Instr& instr, Channels::Queue& queue) {
  blocked_ = queue.empty();
  if (blocked_) return {};
  const ByteRange to = range(instr.out[0]);
  memory_.write(to, Content{});
  auto [from, pieces] = std::move(queue.front());
  queue.pop_front();
  for (auto& [piece, content] : pieces) {
    TENON_TRY(content, as_here(*from, content));
  }
  memory_.write(to, pieces);
  return {};
}

Status Follower::between_classes(const Instr& instr, TransferKind kind) {
  const int64_t me = program_.class_index;
  Channels& channels = shared_.channels;
  const auto held = [&](const Operand& operand) {
    const ByteRange from = range(operand);
    const Content one = memory_.read(from);
    return one.known() ? Memory::Pieces{{{0, from.hi - from.lo}, one}} : memory_.pieces(from);
  };
  switch (kind) {
    case TransferKind::send:
      channels.sent[{me, instr.peer}].emplace_back(&program_, held(instr.in[0]));
      return {};
    case TransferKind::recv: return take(instr, channels.sent[{instr.peer, me}]);
    case TransferKind::broadcast:
      if (instr.peer != me) return take(instr, channels.told[{instr.peer, me}]);
      if (instr.in.size() != 1 || instr.in[0].offset != instr.out[0].offset ||
          instr.in[0].buffer != instr.out[0].buffer)
        return refused("tells the others what is not its own");
      for (size_t other = 0; other < shared_.classes; ++other) {
        if (static_cast<int64_t>(other) != me)
          channels.told[{me, static_cast<int64_t>(other)}].emplace_back(&program_, held(instr.in[0]));
      }
      return {};
    case TransferKind::all_reduce: return sum_of_classes(instr);
    default: return refused("no program of a pipeline has such a transfer between its stages");
  }
}

// Each class adds what it has of the squares.
Status Follower::sum_of_classes(const Instr& instr) {
  auto& sums = shared_.channels.sums;
  if (sums.size() <= sums_) sums.emplace_back(shared_.classes);
  auto& one = sums[sums_];
  auto& mine = one[static_cast<size_t>(program_.class_index)];
  if (!mine) {
    TENON_TRY(mine, whole(instr.in[0]));
  }
  blocked_ = !std::ranges::all_of(one, [](const auto& share) { return share.has_value(); });
  if (blocked_) return {};
  Content total = *mine;
  total.print = {};
  for (const auto& share : one) {
    if (share->form != mine->form || !forms_[share->form].placement().is_replicated())
      return refused("adds up over the stages what is not a number on each of them");
    total.print = total.print + share->print;
  }
  ++sums_;
  return write(instr.out[0], total);
}

}  // namespace tenon
