// What one class of ranks hands to another. Each is followed alone: what a value is, and how it stands on
// both, follows from the reference, and the class that gives it away is held to that as the one that gets it
// relies on it. That both mean the same value is checked beside their transfers, see Transfer::value. What is
// relied on was handed over before, so there is no circle: a step has a first transfer.
#include <fmt/format.h>

#include <algorithm>

#include "plan/verify/follower.h"

namespace tenon {
namespace {

bool same(const Content& a, const Content& b) {
  const auto leaf = [](const auto& x, const auto& y) {
    return x.second.microbatch == y.second.microbatch || !x.second.known();
  };
  return a == b && a.microbatch == b.microbatch &&
         (a.parts == nullptr || std::ranges::equal(a.parts->leaves, b.parts->leaves, leaf));
}

}  // namespace

Status Follower::handed(const Instr& instr, TransferKind kind) {
  if (kind == TransferKind::all_reduce) return sum_of_classes(instr);
  const bool tells = kind == TransferKind::broadcast;
  if (!tells && !is_one_way(kind))
    return refused("no program of a pipeline has such a transfer between its stages");
  const bool gives = tells ? instr.peer == program_.class_index : kind == TransferKind::send;
  TENON_TRY(const Memory::Pieces pieces, handed_pieces(instr, gives));
  return gives ? give(instr, pieces) : take(instr, pieces);
}

Status Follower::give(const Instr& instr, const Memory::Pieces& pieces) {
  if (instr.in.size() != 1) return refused("hands over nothing");
  const Operand& from = instr.in[0];
  const bool own =
      instr.out.empty() || (from.offset == instr.out[0].offset && from.buffer == instr.out[0].buffer);
  if (!own) return refused("tells the others what is not its own");
  const ByteRange all = range(from);
  for (const auto& [piece, content] : pieces) {
    const ByteRange at{all.lo + piece.lo, all.lo + piece.hi};
    if (at.hi > all.hi || !same(memory_.read(at), content))
      return refused(fmt::format("'{}' is handed over as '{}', and is not what the model makes of it",
                                 from.name, name_of_handed(instr)));
  }
  return {};
}

Status Follower::take(const Instr& instr, const Memory::Pieces& pieces) {
  const Operand& to = instr.out[0];
  if (std::ranges::any_of(pieces, [&](const auto& piece) { return piece.first.hi > to.bytes(); }))
    return refused(fmt::format("'{}' has other bytes than what is written there", to.name));
  memory_.write(range(to), Content{});
  memory_.write(range(to), pieces);
  return {};
}

std::string Follower::name_of_handed(const Instr& instr) const {
  const ValueId value = shared_.reference.handed.at(instr.why.value).value;
  return shared_.reference.joint->graph.value(value).name;
}

// Relative to the operand.
Result<Memory::Pieces> Follower::handed_pieces(const Instr& instr, bool gives) {
  const auto& known = shared_.reference.handed;
  const auto it = known.find(instr.why.value);
  if (it == known.end()) return refused("is of a value that no stage hands to another");
  const Handed& handed = it->second;
  switch (instr.why.because) {
    case Why::Because::stage: return handed_value(instr, handed);
    case Why::Because::output: return handed_output(handed);
    case Why::Because::tied:
      return handed_gradient(handed, static_cast<int>(gives ? program_.class_index : instr.peer));
    case Why::Because::updated: return handed_param(handed);
    default: return refused("is of what no stage hands to another");
  }
}

Memory::Pieces Follower::one_piece(const Form& form, const Print& print, int32_t microbatch) {
  const FormId id = forms_.id(form);
  return {{{0, forms_.bytes(id)}, {print, id, {}, nullptr, microbatch}}};
}

Result<Memory::Pieces> Follower::handed_value(const Instr& instr, const Handed& handed) {
  const auto it = expected_.crossing.find(handed.value);
  const auto mb = static_cast<size_t>(instr.microbatch);
  if (it == expected_.crossing.end() || instr.microbatch < 0 || mb >= it->second.prints.size())
    return refused("is of a value that no microbatch makes");
  const Value& value = shared_.reference.joint->graph.value(handed.value);
  return one_piece(form_of(value.dtype, value.dims, handed.placement), it->second.prints[mb],
                   it->second.of_microbatch ? instr.microbatch : kOfAll);
}

// Made from all microbatches.
int32_t Follower::of_all_microbatches() const { return shared_.reference.microbatches == 1 ? 0 : kOfSeveral; }

Result<Memory::Pieces> Follower::handed_output(const Handed& handed) {
  for (const auto& [name, id] : shared_.reference.joint->outputs) {
    const auto print = expected_.outputs.find(name);
    if (id != handed.value || print == expected_.outputs.end()) continue;
    const Value& value = shared_.reference.joint->graph.value(id);
    return one_piece(form_of(value.dtype, value.dims, handed.placement), print->second,
                     of_all_microbatches());
  }
  return refused("is of a value that is no output");
}

// What a class makes of the gradient of a parameter that others hold too: in exact mode summed over the
// ranks, and so the part that a rank updates.
Result<Memory::Pieces> Follower::handed_gradient(const Handed& handed, int klass) {
  const Value& value = shared_.reference.joint->graph.value(handed.value);
  TENON_TRY(const uint32_t layout, bucket_of(value.name));
  const auto& addends = expected_.params.at(value.name).addends;
  const auto addend = addends.find(klass);
  if (addend == addends.end())
    return refused(fmt::format("stage {} makes no gradient of '{}'", klass, value.name));
  const bool exact = shared_.reference.exact;
  const Form form = form_of(value.dtype, value.dims, exact ? handed.placement : handed.gradient);
  const Content content{addend->second, forms_.id(form), {}, nullptr, of_all_microbatches()};
  return in_bucket(content, layout, exact ? program_.layouts[layout].depth() : 0);
}

// A parameter behind its update.
Result<Memory::Pieces> Follower::handed_param(const Handed& handed) {
  const Value& value = shared_.reference.joint->graph.value(handed.value);
  TENON_TRY(const uint32_t layout, bucket_of(value.name));
  const Form form = form_of(value.dtype, value.dims, handed.placement);
  const Content content{expected_.params.at(value.name).after, forms_.id(form), {}, nullptr, kOfAll};
  return in_bucket(content, layout, program_.layouts[layout].param_depth);
}

// That of a parameter which has one of its own.
Result<uint32_t> Follower::bucket_of(const std::string& param) const {
  const auto info = std::ranges::find(program_.params, param, &TensorInfo::name);
  if (info == program_.params.end()) return refused(fmt::format("is of '{}', which is not here", param));
  if (program_.layouts[info->layout].leaves.size() != 1)
    return refused(fmt::format("is of '{}', which is not alone in its bucket", param));
  return info->layout;
}

// The one leaf of a bucket, or of the part of it that the first `depth` axes leave a rank.
Memory::Pieces Follower::in_bucket(const Content& content, uint32_t index, size_t depth) const {
  const FlatLayout& layout = program_.layouts[index];
  const auto size = static_cast<uint64_t>(size_of(forms_[content.form].dtype));
  const uint64_t first = static_cast<uint64_t>(layout.leaves[0].first) * size;
  if (depth == 0) return {{{first, first + forms_.bytes(content.form)}, content}};
  auto parts = std::make_shared<Parts>();
  parts->layout = static_cast<int32_t>(index);
  parts->depth = depth;
  parts->leaves.emplace_back(first, content);
  parts->bytes = static_cast<uint64_t>(most_at(program_.mesh, layout, depth)) * size;
  const uint64_t bytes = parts->bytes;
  return {{{0, bytes}, Content{{}, kNone, {}, std::move(parts)}}};
}

// Each class adds what it has of the squares.
Status Follower::sum_of_classes(const Instr& instr) {
  if (instr.why.because != Why::Because::norm)
    return refused("adds up over the stages what is not the squares of gradients");
  TENON_TRY(Content sum, whole(instr.in[0]));
  Print mine;
  for (const TensorInfo& param : program_.params) {
    const Print& grad = expected_.params.at(param.name).grad;
    if (!param.copy) mine = mine + print_of(*find_op("sqnorm"), {}, std::span(&grad, 1), 0, {}, false);
  }
  const bool number = sum.form != kNone && forms_[sum.form].placement().is_replicated();
  const Print squares = sum.print == zeros_print() ? Print{} : sum.print;  // of a stage without gradients
  if (!number || squares != mine)
    return refused("adds to the norm what is not that of this stage's gradients, each once");
  sum.print = expected_.squares;
  return write(instr.out[0], sum);
}

}  // namespace tenon
