// V007: follows what each piece of gradient memory stands for through the lists of all classes, from the ops
// that contribute to it to the update that uses it.
#include <fmt/format.h>

#include <deque>
#include <memory>
#include <set>

#include "plan/program/contributions.h"
#include "plan/verify/checks.h"
#include "plan/verify/content.h"
#include "plan/verify/verify.h"

namespace tenon {
namespace {

// Through which buffer the bytes got their content: seen through another one they mean nothing.
struct Seen {
  BufferId buffer = kNone;
  Content content;
};

// Tensors that are no gradients.
constexpr const char* kZeros = "(zeros)";
constexpr const char* kOwnPart = "(own part of parameters)";
constexpr const char* kUpdated = "(updated parameters)";

ByteRange moved(const ByteRange& range, uint64_t from, uint64_t to) {
  return {range.lo - from + to, range.hi - from + to};
}

constexpr const char* kLoss = "loss";

// What classes hand to each other: (from, to, kind) -> pieces relative to an operand's start, in order.
using Channels = std::map<std::tuple<int64_t, int64_t, TransferKind>, std::deque<Pieces>>;

class Completeness {
 public:
  // `loss_ops`: of one microbatch, over all classes.
  Completeness(const Program& program, int64_t classes, int loss_ops, Channels& channels)
      : program_(program),
        classes_(classes),
        loss_ops_(loss_ops),
        channels_(channels),
        training_(program.name == "train") {
    for (const auto* axes : {&program.batch_axes, &program.seq_axes}) {
      for (AxisId axis : *axes) {
        if (program.mesh.axes[axis].size > 1) axes_.insert(axis);
      }
    }
  }

  // Runs on until the end or until another class must move first. Whether anything ran.
  Result<bool> advance() {
    const InstrId before = next_;
    while (next_ < program_.instrs.size()) {
      blocked_ = false;
      TENON_CHECK(step(next_));
      if (blocked_) break;
      ++next_;
    }
    return next_ != before;
  }
  bool done() const { return next_ == program_.instrs.size(); }
  InstrId at() const { return next_; }

  Status finish() const {
    for (const TensorInfo& param : program_.params) {
      if (!training_) break;
      const auto it = updates_.find(param.name);
      const int count = it == updates_.end() ? 0 : it->second, expected = param.copy ? 0 : 1;
      if (count != expected) {
        return refuse("V007", fmt::format("parameter '{}' is updated {} times in a step", param.name, count),
                      param.name);
      }
      if (!fresh_.contains(param.operand.buffer)) {
        return refuse(
            "V007",
            fmt::format("parameter '{}' is not brought up to date on every rank that holds it whole",
                        param.name),
            param.name);
      }
    }
    for (const std::string name : {kLoss, "count"}) {
      const auto it = program_.outputs.find(name);
      if (it == program_.outputs.end()) continue;
      const std::string place = fmt::format("{} program, output {}", program_.name, name);
      const Content content = content_of(it->second);
      TENON_CHECK(check_whole(content, name, name == kLoss ? loss_ops_ : 1, place));
      TENON_CHECK(check_sum(name, content, axes_, place));
    }
    return {};
  }

 private:
  ByteRange range(const Operand& operand) const { return range_of(program_, operand); }

  Pieces read(const ByteRange& range, BufferId buffer) const {
    Pieces out;
    for (auto& [piece, held] : bytes_.pieces(range)) {
      out.emplace_back(piece, held.buffer == buffer ? std::move(held.content) : Content{});
    }
    return out;
  }
  Pieces read(const Operand& operand) const { return read(range(operand), operand.buffer); }
  Content content_of(const Operand& operand) const { return uniform(read(operand)); }
  void write(const Operand& operand, Content content) {
    bytes_.assign(range(operand), Seen{operand.buffer, std::move(content)});
  }

  Status step(InstrId id) {
    const Instr& instr = program_.instrs[id];
    const std::string& kind = instr.kind;
    if (kind == "update") return update(id);
    if (kind == "norms") return norms(id);
    const TransferKind transfer = transfer_of(instr);
    if (is_one_way(transfer) || transfer == TransferKind::broadcast) return pass_on(id);
    if (brings_update(instr)) {
      fresh_.insert(instr.out[0].buffer);
      return {};
    }
    TENON_CHECK(check_target(id));
    if (transfer != TransferKind::none) {
      const bool over_classes = classes_ > 1 && std::ranges::count(instr.axes, program_.pipeline_axis) > 0;
      return over_classes ? merge_classes(id) : move(instr);
    }
    if (kind == "add" || kind == "slice" || kind == "concat") return move(instr);
    if (kind == "sum") return sum_squares(id);
    if (kind == "zeros") return write_as(instr.out[0], kZeros);
    if (kind == "own_part") return write_as(instr.out[0], kOwnPart);
    if (kind == "clip_scale") TENON_CHECK(check_norm(id));
    if (instr.phase == Phase::weight_grad || makes_loss(instr)) return contribute(id);
    for (const Operand& out : instr.out) write(out, Content{});
    return {};
  }

  // The updated parts of a bucket, gathered to where it rests.
  bool brings_update(const Instr& instr) const {
    return transfer_of(instr) == TransferKind::all_gather &&
           program_.buffers[instr.out[0].buffer].space == Space::param &&
           content_of(instr.in[0]).tensor == kUpdated;
  }

  Status check_target(InstrId id) const {
    for (const Operand& out : program_.instrs[id].out) {
      const Space space = program_.buffers[out.buffer].space;
      if (space == Space::arena) continue;
      return refuse("V007",
                    fmt::format("writes to the {} '{}', which only an update may", name_of(space), out.name),
                    where(program_, id));
    }
    return {};
  }

  Status move(const Instr& instr) {
    for (auto& [piece, content] : result_of(instr))
      bytes_.assign(piece, Seen{instr.out[0].buffer, std::move(content)});
    return {};
  }

  Status write_as(const Operand& operand, const char* tensor) {
    Content content;
    content.tensor = tensor;
    write(operand, std::move(content));
    return {};
  }

  // What an op's output is a contribution to.
  static std::string tensor_of(const Instr& instr, size_t output) {
    return is_loss(instr, output) ? kLoss : instr.out[output].name;
  }

  Status contribute(InstrId id) {
    const Instr& instr = program_.instrs[id];
    for (size_t k = 0; k < instr.out.size(); ++k) {
      const Operand& out = instr.out[k];
      if (!is_contribution(instr, k)) {
        write(out, Content{});
        continue;
      }
      Content content;
      if (adds_into(instr, k)) {
        content = content_of(out);
        if (content.tensor != out.name || !content.summed.empty()) {
          return refuse("V007", "adds into '" + out.name + "', where that gradient is not",
                        where(program_, id));
        }
      }
      content.tensor = tensor_of(instr, k);
      const int nth = ops_[{instr.microbatch, content.tensor}]++;
      const std::string stage = instr.stage > 0 ? fmt::format(" of stage {}", instr.stage) : "";
      ++content.from[{fmt::format("{} {}{}", contributing_op(instr, k), nth, stage), instr.microbatch}];
      write(out, std::move(content));
    }
    return {};
  }

  // -- between classes ------------------------------------------------------------------------------
  Pieces relative(const Operand& operand) const {
    Pieces out = read(operand);
    const uint64_t start = range(operand).lo;
    for (auto& [piece, content] : out) piece = moved(piece, start, 0);
    if (fresh_.contains(operand.buffer)) out = {{ByteRange{0, operand.bytes()}, updated()}};
    return out;
  }
  static Content updated() {
    Content out;
    out.tensor = kUpdated;
    return out;
  }
  std::deque<Pieces>& channel(int64_t from, int64_t to, TransferKind kind) {
    return channels_[{from, to, kind}];
  }

  Status arrive(const Operand& operand, const Pieces& pieces) {
    if (program_.buffers[operand.buffer].space == Space::param) {
      if (pieces.size() == 1 && pieces[0].second.tensor == kUpdated) fresh_.insert(operand.buffer);
      return {};
    }
    const uint64_t start = range(operand).lo;
    for (const auto& [piece, content] : pieces)
      bytes_.assign(moved(piece, 0, start), Seen{operand.buffer, content});
    return {};
  }

  // Sends and broadcasts: to a channel, or from it once something is there.
  Status pass_on(InstrId id) {
    const Instr& instr = program_.instrs[id];
    const int64_t me = program_.class_index;
    const TransferKind kind = transfer_of(instr);
    if (kind == TransferKind::send) {
      channel(me, instr.peer, kind).push_back(relative(instr.in[0]));
      return {};
    }
    if (kind == TransferKind::broadcast && instr.peer == me) {
      for (int64_t other = 0; other < classes_; ++other) {
        if (other != me) channel(me, other, kind).push_back(relative(instr.out[0]));
      }
      return {};
    }
    auto& queue = channel(instr.peer, me, kind == TransferKind::recv ? TransferKind::send : kind);
    blocked_ = queue.empty();
    if (blocked_) return {};
    const Pieces pieces = std::move(queue.front());
    queue.pop_front();
    return arrive(instr.out[0], pieces);
  }

  // A sum over the classes: only norms are.
  Status merge_classes(InstrId id) {
    const Instr& instr = program_.instrs[id];
    const int64_t me = program_.class_index;
    if (!announced_) {
      for (int64_t other = 0; other < classes_; ++other) {
        if (other != me) channel(me, other, TransferKind::all_reduce).push_back(relative(instr.in[0]));
      }
      announced_ = true;
    }
    for (int64_t other = 0; other < classes_; ++other) {
      blocked_ |= other != me && channel(other, me, TransferKind::all_reduce).empty();
    }
    if (blocked_) return {};
    announced_ = false;
    Content all = content_of(instr.in[0]);
    for (int64_t other = 0; other < classes_; ++other) {
      if (other == me) continue;
      auto& queue = channel(other, me, TransferKind::all_reduce);
      for (const auto& [piece, content] : queue.front()) add_squares(all, content);
      queue.pop_front();
    }
    write(instr.out[0], std::move(all));
    return {};
  }

  static void add_squares(Content& all, const Content& content) {
    if (content.squares.empty() != all.squares.empty() && !content.empty()) all.mixed = true;
    for (const auto& [param, count] : content.squares) all.squares[param] += count;
  }

  // -- movement -------------------------------------------------------------------------------------
  // What all pieces are; a hole makes a mixture of them.
  static Content uniform(const Pieces& pieces) {
    for (const auto& [piece, content] : pieces) {
      if (!(content == pieces[0].second)) return mixture();
    }
    return pieces.empty() ? Content{} : pieces[0].second;
  }

  Pieces result_of(const Instr& instr) const {
    const TransferKind kind = transfer_of(instr);
    if (instr.kind == "add") return added(instr);
    if (kind == TransferKind::all_reduce)
      return mapped(instr, [&](const Content& c) { return reduced(c, instr); });
    if (kind == TransferKind::all_gather) return gathered(instr);
    if (kind == TransferKind::reduce_scatter && instr.layout >= 0) return scattered(instr);
    if (kind == TransferKind::all_to_all && axes_.contains(instr.axes[0])) return exchanged(instr);
    if (instr.kind == "slice" && instr.in[0].elements() == instr.out[0].elements()) {
      return mapped(instr, [](const Content& c) { return c; });
    }
    Pieces all;  // the rest takes tensors apart along their dims
    for (const Operand& in : instr.in) {
      for (auto& piece : read(in)) all.push_back(std::move(piece));
    }
    const Content common = uniform(all);
    return {{range(instr.out[0]), kind == TransferKind::reduce_scatter ? reduced(common, instr) : common}};
  }

  template <class Map>
  Pieces mapped(const Instr& instr, Map map) const {
    const uint64_t from = range(instr.in[0]).lo, to = range(instr.out[0]).lo;
    Pieces out;
    for (const auto& [piece, content] : read(instr.in[0]))
      out.emplace_back(moved(piece, from, to), map(content));
    return out;
  }

  Pieces added(const Instr& instr) const {
    const ByteRange to = range(instr.out[0]), a = range(instr.in[0]), b = range(instr.in[1]);
    Pieces out;
    for (const auto& [left, x] : read(instr.in[0])) {
      const ByteRange beside = moved(left, a.lo, b.lo);
      for (const auto& [right, y] : read(beside, instr.in[1].buffer))
        out.emplace_back(moved(right, b.lo, to.lo), sum(x, y));
    }
    return out;
  }

  Content reduced(Content content, const Instr& instr) const {
    if (content.empty()) return content;
    if (!content.squares.empty()) return reduced_squares(std::move(content), instr);
    if (instr.reduction != Reduction::sum) return mixture();
    if (content.part_of != nullptr) {  // what is left to sum of a part
      if (content.part_of->flat < 0) return mixture();
      const auto layout = std::make_shared<PartLayout>(*content.part_of);
      for (auto& [piece, inner] : layout->pieces) inner = reduced(std::move(inner), instr);
      content.part_of = layout;
      return content;
    }
    for (AxisId axis : instr.axes) {
      // A router's auxiliary loss and the loss it is added to may be cut by different axes beside the
      // samples'.
      if (content.tensor == kLoss && !axes_.contains(axis)) continue;
      const auto n = static_cast<int>(program_.mesh.axes[axis].size);
      auto [it, fresh] = content.summed.try_emplace(axis, std::vector<int>(static_cast<size_t>(n), 1));
      for (int& count : it->second) count *= fresh ? 1 : n;
    }
    return content;
  }

  // Squares are summed over the axes that cut the gradients, and over no other.
  Content reduced_squares(Content content, const Instr& instr) const {
    for (AxisId axis : instr.axes) {
      if (std::erase(content.owed, axis) > 0) continue;
      for (auto& [param, count] : content.squares) count *= static_cast<int>(program_.mesh.axes[axis].size);
    }
    return content;
  }

  // The part of a bucket that this rank keeps of the sum.
  Pieces scattered(const Instr& instr) const {
    const auto depths = depths_of(program_.layouts[static_cast<size_t>(instr.layout)], instr.axes);
    if (!depths) return {{range(instr.out[0]), mixture()}};
    const auto layout = std::make_shared<PartLayout>();
    layout->flat = instr.layout;
    layout->depth = depths->inner;
    const Content part = content_of(instr.in[0]);
    if (depths->outer > 0) {  // of a part, a part
      const bool fits = part.part_of != nullptr && part.part_of->flat == instr.layout &&
                        part.part_of->depth == depths->outer;
      if (!fits) return {{range(instr.out[0]), mixture()}};
      layout->pieces = reduced(part, instr).part_of->pieces;
    } else {
      const ByteRange from = range(instr.in[0]);
      for (auto& [piece, content] : read(instr.in[0]))
        layout->pieces.emplace_back(moved(piece, from.lo, 0), reduced(std::move(content), instr));
    }
    Content out;
    out.part_of = layout;
    return {{range(instr.out[0]), std::move(out)}};
  }

  // Part j is member j's: at the place of this rank's part within the buffer.
  Pieces exchanged(const Instr& instr) const {
    const ByteRange to = range(instr.out[0]), from = range(instr.in[0]);
    const int64_t n = program_.mesh.size(instr.axes);
    const auto layout = std::make_shared<PartLayout>();
    layout->axis = instr.axes[0];
    layout->part_bytes = (to.hi - to.lo) / static_cast<uint64_t>(n);
    bool known = false, fit = instr.axes.size() == 1;
    for (auto& [piece, content] : read(instr.in[0])) {
      known |= !content.empty();
      fit &= content.summed.empty() && content.part_of == nullptr;
      layout->pieces.emplace_back(moved(piece, from.lo, 0), std::move(content));
    }
    if (!known) return {{to, Content{}}};
    if (!fit) return {{to, mixture()}};
    Pieces out;
    for (int64_t j = 0; j < n; ++j) {
      Content content;
      content.part_of = layout;
      content.summed[layout->axis] = only(j, n);
      const uint64_t lo = to.lo + static_cast<uint64_t>(j) * layout->part_bytes;
      out.emplace_back(ByteRange{lo, lo + layout->part_bytes}, std::move(content));
    }
    return out;
  }

  Pieces gathered(const Instr& instr) const {
    const ByteRange to = range(instr.out[0]), from = range(instr.in[0]);
    const Content content = content_of(instr.in[0]);
    const int64_t n = program_.mesh.size(instr.axes);
    const AxisId axis = instr.axes[0];
    if (instr.layout >= 0) return {{to, content}};
    if (content.part_of != nullptr) {
      const PartLayout& layout = *content.part_of;
      if (layout.flat >= 0 || instr.axes.size() != 1 || layout.axis != axis ||
          layout.part_bytes != from.hi - from.lo)
        return {{to, mixture()}};
      Pieces out;
      for (auto [piece, before] : layout.pieces) {
        if (!before.empty()) before.summed = content.summed;
        out.emplace_back(moved(piece, 0, to.lo), std::move(before));
      }
      return out;
    }
    Pieces out;
    for (int64_t j = 0; j < n; ++j) {
      Content part = content;
      if (!part.empty() && axes_.contains(axis) && instr.axes.size() == 1)
        part.summed.try_emplace(axis, only(j, n));
      const uint64_t bytes = from.hi - from.lo, lo = to.lo + static_cast<uint64_t>(j) * bytes;
      out.emplace_back(ByteRange{lo, lo + bytes}, std::move(part));
    }
    return out;
  }

  // -- uses -----------------------------------------------------------------------------------------
  const FlatLayout* layout_of(const Instr& instr) const {
    const auto index = static_cast<size_t>(instr.layout);
    return instr.layout >= 0 && index < program_.layouts.size() ? &program_.layouts[index] : nullptr;
  }

  // What a leaf's gradient is within the gradient memory of its bucket.
  Content gradient_of(const FlatLayout::Leaf& leaf, const Operand& bucket) const {
    const auto size = static_cast<uint64_t>(size_of(bucket.dtype));
    const ByteRange inside{static_cast<uint64_t>(leaf.first) * size,
                           static_cast<uint64_t>(leaf.first + leaf.count) * size};
    const ByteRange all = range(bucket);
    const Content whole = content_of(bucket);
    if (whole.part_of == nullptr) return uniform(read(moved(inside, 0, all.lo), bucket.buffer));
    Pieces out;
    for (const auto& [piece, content] : whole.part_of->pieces) {
      if (piece.lo < inside.hi && inside.lo < piece.hi) out.emplace_back(piece, content);
    }
    return uniform(out);
  }

  // Each leaf's gradient is complete and its own, and cut as the layout says.
  Status check_gradients(InstrId id, const FlatLayout& layout, const Operand& bucket) {
    const Content whole = content_of(bucket);
    const bool parts = whole.part_of != nullptr;
    const bool as_cut = !parts || (whole.part_of->flat == program_.instrs[id].layout &&
                                   whole.part_of->depth == layout.depth());
    if (parts != !layout.axes.empty() || !as_cut) {
      return refuse("V007", "'" + bucket.name + "' is not cut as its bucket is", where(program_, id));
    }
    for (const FlatLayout::Leaf& leaf : layout.leaves) {
      if (leaf.param >= program_.params.size())
        return refuse("V007", "a bucket has a parameter that is not there", where(program_, id));
      const TensorInfo& param = program_.params[leaf.param];
      const Content content = gradient_of(leaf, bucket);
      if (!content.tensor.empty() && content.tensor != param.name + ".grad") {
        return refuse("V007", fmt::format("'{}' would be updated with '{}'", param.name, content.tensor),
                      where(program_, id));
      }
      TENON_CHECK(check_whole(content, param.name + ".grad", param.contributions, where(program_, id)));
      TENON_CHECK(check_sum(param.name + ".grad", content, summed_axes(param), where(program_, id)));
      for (const auto& [axis, members] : content.summed) {
        if (summed_axes(param).contains(axis)) continue;
        return refuse("V007",
                      fmt::format("'{}.grad' is summed over {}, on which no rank has an addend of it",
                                  param.name, program_.mesh.axes[axis].name),
                      where(program_, id));
      }
    }
    return {};
  }

  Status update(InstrId id) {
    const Instr& instr = program_.instrs[id];
    const FlatLayout* layout = layout_of(instr);
    if (layout == nullptr || instr.in.size() != 2 || instr.out.empty())
      return refuse("V007", "an update is of one bucket, with its gradients and a scale",
                    where(program_, id));
    TENON_CHECK(check_gradients(id, *layout, instr.in[0]));
    const bool own = layout->param_depth < layout->depth();
    const Operand& params = instr.out[0];
    for (const FlatLayout::Leaf& leaf : layout->leaves) {
      const TensorInfo& param = program_.params[leaf.param];
      const bool here = own ? content_of(params).tensor == kOwnPart
                            : params.buffer == param.operand.buffer && params.offset == 0;
      if (!here)
        return refuse("V007", "'" + param.name + "' is not updated where it is", where(program_, id));
      ++updates_[param.name];
      TENON_CHECK(check_states(id, param));
    }
    if (own)
      write(params, updated());
    else
      fresh_.insert(params.buffer);
    return {};
  }

  Status check_states(InstrId id, const TensorInfo& param) const {
    const Instr& instr = program_.instrs[id];
    for (const TensorInfo& state : program_.states) {
      if (state.layout != param.layout || state.leaf != param.leaf) continue;
      const bool given = std::any_of(instr.out.begin() + 1, instr.out.end(), [&](const Operand& out) {
        return out.buffer == state.operand.buffer && out.offset == 0;
      });
      if (!given)
        return refuse("V007", "'" + state.name + "' is not updated where it is", where(program_, id));
    }
    return {};
  }

  Status norms(InstrId id) {
    const Instr& instr = program_.instrs[id];
    const FlatLayout* layout = layout_of(instr);
    if (layout == nullptr) return refuse("V007", "norms are of one bucket", where(program_, id));
    TENON_CHECK(check_gradients(id, *layout, instr.in[0]));
    if (!layout->axes.empty() && content_of(instr.out[0]).tensor != kZeros) {
      return refuse("V007", "the norms of other members' parts start with what was there before",
                    where(program_, id));
    }
    Content content;
    content.owed = layout->axes;
    for (const FlatLayout::Leaf& leaf : layout->leaves) {
      const TensorInfo& param = program_.params[leaf.param];
      ++content.squares[param.name];
      if (&leaf != &layout->leaves.front()) continue;  // all leaves of a bucket are cut by the same axes
      for (const auto& dim : param.placement.dims)
        content.owed.insert(content.owed.end(), dim.begin(), dim.end());
    }
    std::sort(content.owed.begin(), content.owed.end());
    write(instr.out[0], std::move(content));
    return {};
  }

  Status sum_squares(InstrId id) {
    const Instr& instr = program_.instrs[id];
    Content all;
    for (const auto& [piece, content] : read(instr.in[0])) {
      if (content.mixed || !content.owed.empty()) {
        return refuse(
            "V007",
            fmt::format("squares are not summed over {} that cut their gradients", content.owed.size()),
            where(program_, id));
      }
      for (const auto& [param, count] : content.squares) all.squares[param] += count;
    }
    write(instr.out[0], std::move(all));
    return {};
  }

  // The norm is that of every gradient once, and the scale divides by the whole count.
  Status check_norm(InstrId id) {
    const Instr& instr = program_.instrs[id];
    const Content content = content_of(instr.in[0]);
    for (const auto& [param, count] : content.squares) {
      if (count == 1) continue;
      return refuse("V007", fmt::format("the norm has the gradient of '{}' {} times", param, count),
                    where(program_, id));
    }
    for (const TensorInfo& param : program_.params) {
      if (content.squares.contains(param.name)) continue;
      return refuse("V007", fmt::format("the norm lacks the gradient of '{}'", param.name),
                    where(program_, id));
    }
    const Content tokens = content_of(instr.in.back());
    TENON_CHECK(check_whole(tokens, instr.in.back().name, 1, where(program_, id)));
    return check_sum(instr.in.back().name, tokens, axes_, where(program_, id));
  }

  // Every contribution of every microbatch, once.
  Status check_whole(const Content& content, const std::string& name, int expected,
                     const std::string& place) const {
    if (content.mixed || content.part_of != nullptr) {
      return refuse("V007", "'" + name + "' is not a sum over microbatches and ranks", place);
    }
    if (content.empty()) return refuse("V007", "no microbatch contributed to '" + name + "'", place);
    std::map<std::string, std::set<int>> by_op;
    for (const auto& [key, count] : content.from) {
      if (count != 1) {
        return refuse(
            "V007",
            fmt::format("'{}' has '{}' of microbatch {} {} times", name, key.first, key.second, count),
            place);
      }
      by_op[key.first].insert(key.second);
    }
    for (const auto& [op, microbatches] : by_op) {
      if (static_cast<int64_t>(microbatches.size()) == program_.microbatches) continue;
      return refuse("V007",
                    fmt::format("'{}' has '{}' of {} microbatches, not of {}", name, op, microbatches.size(),
                                program_.microbatches),
                    place);
    }
    if (static_cast<int>(by_op.size()) != expected) {
      return refuse("V007",
                    fmt::format("'{}' has contributions of {} ops, not of {}", name, by_op.size(), expected),
                    place);
    }
    return {};
  }

  // Over which a gradient is to be summed: where the graph has partial sums of it, and over all samples but
  // those that come to it by exchange, over axes that cut the parameter itself.
  std::set<AxisId> summed_axes(const TensorInfo& param) const {
    std::set<AxisId> out = axes_;
    for (const auto& dim : param.placement.dims) {
      for (AxisId axis : dim) out.erase(axis);
    }
    for (AxisId axis : param.partial) {
      if (program_.mesh.axes[axis].size > 1) out.insert(axis);
    }
    return out;
  }

  // Over each of the axes, every member once.
  Status check_sum(const std::string& name, const Content& content, const std::set<AxisId>& axes,
                   const std::string& place) const {
    for (AxisId axis : axes) {
      const auto it = content.summed.find(axis);
      const std::string& along = program_.mesh.axes[axis].name;
      if (it == content.summed.end())
        return refuse("V007", fmt::format("'{}' is not summed over {}", name, along), place);
      for (size_t j = 0; j < it->second.size(); ++j) {
        if (it->second[j] == 1) continue;
        return refuse(
            "V007",
            fmt::format("'{}' has the value of member {} of {} {} times", name, j, along, it->second[j]),
            place);
      }
    }
    return {};
  }

  const Program& program_;
  const int64_t classes_;
  const int loss_ops_;
  Channels& channels_;
  const bool training_;
  InstrId next_ = 0;
  bool blocked_ = false;
  bool announced_ = false;    // this class's share of a sum over classes
  std::set<AxisId> axes_;     // that shard the samples
  std::set<BufferId> fresh_;  // parameters' buffers that hold this step's result
  ByteMap<Seen> bytes_;
  std::map<std::pair<int, std::string>, int> ops_;
  std::map<std::string, int> updates_;
};

}  // namespace

namespace {

// A layout's leaves are whole parameters, side by side, and its parts together are all of it.
Status check_layout(const Program& program, const FlatLayout& layout, std::vector<int>& in_layouts) {
  const auto wrong = [&](const std::string& what) {
    return refuse("V007", what,
                  fmt::format("{} program, layout of '{}'", program.name,
                              layout.leaves.empty() ? "nothing"
                              : layout.leaves[0].param < program.params.size()
                                  ? program.params[layout.leaves[0].param].name
                                  : "nobody"));
  };
  int64_t end = 0;
  for (const FlatLayout::Leaf& leaf : layout.leaves) {
    if (leaf.param >= program.params.size()) return wrong("a bucket has a parameter that is not there");
    const TensorInfo& param = program.params[leaf.param];
    ++in_layouts[leaf.param];
    if (leaf.first < end) return wrong("'" + param.name + "' shares elements with the leaf before it");
    if (leaf.count != param.operand.elements()) return wrong("'" + param.name + "' is not there as a whole");
    end = leaf.first + leaf.count;
  }
  const std::vector<int64_t>& cuts = layout.cuts;
  const auto members = static_cast<size_t>(program.mesh.size(layout.axes));
  const bool whole = end <= layout.elements && cuts.size() == members + 1 && cuts.front() == 0 &&
                     cuts.back() == layout.elements && std::ranges::is_sorted(cuts);
  return whole ? Status() : wrong("the parts of its members are not all of a bucket, each element once");
}

Status check_layouts(const Program& program) {
  std::vector<int> in_layouts(program.params.size());
  for (const FlatLayout& layout : program.layouts) TENON_CHECK(check_layout(program, layout, in_layouts));
  for (size_t i = 0; i < in_layouts.size(); ++i) {
    if (in_layouts[i] == 1) continue;
    return refuse("V007",
                  fmt::format("parameter '{}' is in {} buckets", program.params[i].name, in_layouts[i]),
                  program.params[i].name);
  }
  return {};
}

}  // namespace

Status check_completeness(const std::vector<Program>& programs) {
  Channels channels;
  std::vector<Completeness> classes;
  classes.reserve(programs.size());
  int loss_ops = 0;
  for (const Program& program : programs) {
    TENON_CHECK(check_layouts(program));
    for (const Instr& instr : program.instrs) loss_ops += instr.microbatch == 0 && makes_loss(instr) ? 1 : 0;
  }
  for (const Program& program : programs)
    classes.emplace_back(program, static_cast<int64_t>(programs.size()), loss_ops, channels);
  for (bool moved = true; moved;) {
    moved = false;
    for (Completeness& one : classes) {
      TENON_TRY(const bool ran, one.advance());
      moved |= ran;
    }
  }
  for (size_t i = 0; i < classes.size(); ++i) {
    if (!classes[i].done())
      return refuse("V007", "waits for what no other class sends", where(programs[i], classes[i].at()));
  }
  for (const Completeness& one : classes) TENON_CHECK(one.finish());
  return {};
}

}  // namespace tenon
