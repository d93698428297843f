// V007: follows what each piece of gradient memory stands for through the list, from the ops that
// contribute to it to the update that uses it.
#include <fmt/format.h>

#include <memory>
#include <set>

#include "plan/checks.h"
#include "plan/verify.h"

namespace tenon {
namespace {

struct Layout;

// What some bytes stand for. Nothing known: `tensor` is empty and the flags are unset.
struct Content {
  std::string tensor;
  std::map<std::pair<std::string, int>, int> from;  // (op, microbatch) -> how often
  // Per axis that shards the samples: how often each member's value is in the sum. Absent: the own one.
  std::map<AxisId, std::vector<int>> summed;
  // Set: an equal part of an exchanged buffer, at a place that depends on the rank.
  std::shared_ptr<const Layout> part_of;
  bool mixed = false;  // several things in one, or what no gradient may be

  bool empty() const { return tensor.empty() && part_of == nullptr && !mixed; }
  bool operator==(const Content&) const = default;
};

struct Layout {
  std::vector<std::pair<Range, Content>> pieces;  // relative to the start
  AxisId axis = 0;
  uint64_t part_bytes = 0;
};

using Pieces = std::vector<std::pair<Range, Content>>;

// Through which buffer the bytes got their content: seen through another one they mean nothing.
struct Held {
  BufferId buffer = kNone;
  Content content;
};

Range moved(const Range& range, uint64_t from, uint64_t to) {
  return {range.lo - from + to, range.hi - from + to};
}

Content mixture() {
  Content out;
  out.mixed = true;
  return out;
}

std::vector<int> only(int64_t member, int64_t members) {
  std::vector<int> out(static_cast<size_t>(members));
  out[static_cast<size_t>(member)] = 1;
  return out;
}

// The sum of two values, element by element.
Content sum(const Content& a, const Content& b) {
  if (a.empty() && b.empty()) return {};
  if (a.mixed || b.mixed || a.tensor != b.tensor || a.part_of != b.part_of) return mixture();
  Content out = a;
  if (a.summed.empty() && b.summed.empty()) {  // of microbatches
    for (const auto& [key, count] : b.from) out.from[key] += count;
    return out;
  }
  if (a.from != b.from || a.summed.size() != b.summed.size()) return mixture();
  for (auto& [axis, members] : out.summed) {  // of members
    const auto other = b.summed.find(axis);
    if (other == b.summed.end()) return mixture();
    for (size_t i = 0; i < members.size(); ++i) members[i] += other->second[i];
  }
  return out;
}

constexpr const char* kLoss = "loss";

class Completeness {
 public:
  explicit Completeness(const Program& program) : program_(program), training_(program.name == "train") {
    for (AxisId axis : program.batch_axes) {
      if (program.mesh.axes[axis].size > 1) axes_.insert(axis);
    }
    for (const TensorInfo& param : program.params) expected_[param.name + ".grad"] = param.contributions;
    expected_[kLoss] = 0;
    for (const Instr& instr : program.instrs) expected_[kLoss] += instr.microbatch == 0 && makes_loss(instr);
  }

  Status run() {
    for (InstrId id = 0; id < program_.instrs.size(); ++id) TENON_CHECK(step(id));
    for (const TensorInfo& param : program_.params) {
      const int count = updates_[param.name];
      if (training_ && count != 1) {
        return refuse("V007", fmt::format("parameter '{}' is updated {} times in a step", param.name, count),
                      param.name);
      }
    }
    for (const std::string name : {kLoss, "count"}) {
      const auto it = program_.outputs.find(name);
      if (it == program_.outputs.end()) continue;
      const int expected = name == kLoss ? expected_[name] : 1;
      TENON_CHECK(
          check_whole(it->second, expected, fmt::format("{} program, output {}", program_.name, name)));
    }
    return {};
  }

 private:
  Range range(const Operand& operand) const { return range_of(program_, operand); }

  Pieces read(const Range& range, BufferId buffer) const {
    Pieces out;
    for (auto& [piece, held] : bytes_.pieces(range)) {
      out.emplace_back(piece, held.buffer == buffer ? std::move(held.content) : Content{});
    }
    return out;
  }
  Pieces read(const Operand& operand) const { return read(range(operand), operand.buffer); }
  Content content_of(const Operand& operand) const { return uniform(read(operand)); }
  void write(const Operand& operand, Content content) {
    bytes_.assign(range(operand), Held{operand.buffer, std::move(content)});
  }

  Status step(InstrId id) {
    const Instr& instr = program_.instrs[id];
    if (instr.kind == "update") return update(id);
    for (const Operand& out : instr.out) {
      const Space space = program_.buffers[out.buffer].space;
      if (space != Space::arena) {
        return refuse(
            "V007", fmt::format("writes to the {} '{}', which only an update may", name_of(space), out.name),
            where(program_, id));
      }
    }
    if (is_transfer(instr.kind) || instr.kind == "add" || instr.kind == "slice" || instr.kind == "concat") {
      for (auto& [piece, content] : result_of(instr))
        bytes_.assign(piece, Held{instr.out[0].buffer, std::move(content)});
      return {};
    }
    if (instr.kind == "sqnorm") TENON_CHECK(check_gradient(id, instr.in[0], ""));
    if (instr.kind == "clip_scale") TENON_CHECK(check_norm(id));
    if (instr.phase == Phase::weight_grad || makes_loss(instr) || instr.kind == "sqnorm")
      return contribute(id);
    for (const Operand& out : instr.out) write(out, Content{});
    return {};
  }

  static bool makes_loss(const Instr& instr) {
    return instr.kind == "cross_entropy" || instr.kind == "route_topk";
  }
  // What an op's output is a contribution to.
  std::string tensor_of(const Instr& instr, const Operand& out) const {
    if (instr.kind == "sqnorm") return content_of(instr.in[0]).tensor;  // the gradient that it is made from
    return instr.kind == "route_topk" ? kLoss : out.name;
  }

  Status contribute(InstrId id) {
    const Instr& instr = program_.instrs[id];
    for (const Operand& out : instr.out) {
      if (instr.kind == "route_topk" && &out != &instr.out.back()) {  // the last is the auxiliary loss
        write(out, Content{});
        continue;
      }
      Content content;
      if (instr.accumulate) {
        content = content_of(out);
        if (content.tensor != out.name || !content.summed.empty()) {
          return refuse("V007", "adds into '" + out.name + "', where that gradient is not",
                        where(program_, id));
        }
      }
      content.tensor = tensor_of(instr, out);
      const int nth = ops_[{instr.microbatch, content.tensor}]++;
      ++content.from[{fmt::format("{} {}", instr.kind, nth), instr.microbatch}];
      write(out, std::move(content));
    }
    return {};
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
    if (instr.kind == "add") return added(instr);
    if (instr.kind == "all_reduce") return mapped(instr, [&](const Content& c) { return reduced(c, instr); });
    if (instr.kind == "all_gather") return gathered(instr);
    if (instr.kind == "all_to_all" && axes_.contains(instr.axes[0])) return exchanged(instr);
    if (instr.kind == "slice" && instr.in[0].elements() == instr.out[0].elements()) {
      return mapped(instr, [](const Content& c) { return c; });
    }
    Pieces all;  // the rest takes tensors apart along their dims
    for (const Operand& in : instr.in) {
      for (auto& piece : read(in)) all.push_back(std::move(piece));
    }
    const Content common = uniform(all);
    return {{range(instr.out[0]), instr.kind == "reduce_scatter" ? reduced(common, instr) : common}};
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
    const Range to = range(instr.out[0]), a = range(instr.in[0]), b = range(instr.in[1]);
    Pieces out;
    for (const auto& [left, x] : read(instr.in[0])) {
      const Range beside = moved(left, a.lo, b.lo);
      for (const auto& [right, y] : read(beside, instr.in[1].buffer))
        out.emplace_back(moved(right, b.lo, to.lo), sum(x, y));
    }
    return out;
  }

  Content reduced(Content content, const Instr& instr) const {
    if (content.empty()) return content;
    if (instr.reduction != Reduction::sum || content.part_of != nullptr) return mixture();
    for (AxisId axis : instr.axes) {
      if (!axes_.contains(axis)) continue;
      const auto n = static_cast<int>(program_.mesh.axes[axis].size);
      auto [it, fresh] = content.summed.try_emplace(axis, std::vector<int>(static_cast<size_t>(n), 1));
      for (int& count : it->second) count *= fresh ? 1 : n;
    }
    return content;
  }

  // Part j is member j's: at the place of this rank's part within the buffer.
  Pieces exchanged(const Instr& instr) const {
    const Range to = range(instr.out[0]), from = range(instr.in[0]);
    const int64_t n = program_.mesh.size(instr.axes);
    const auto layout = std::make_shared<Layout>();
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
      out.emplace_back(Range{lo, lo + layout->part_bytes}, std::move(content));
    }
    return out;
  }

  Pieces gathered(const Instr& instr) const {
    const Range to = range(instr.out[0]), from = range(instr.in[0]);
    const Content content = content_of(instr.in[0]);
    const int64_t n = program_.mesh.size(instr.axes);
    const AxisId axis = instr.axes[0];
    if (content.part_of != nullptr) {
      const Layout& layout = *content.part_of;
      if (instr.axes.size() != 1 || layout.axis != axis || layout.part_bytes != from.hi - from.lo)
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
      out.emplace_back(Range{lo, lo + bytes}, std::move(part));
    }
    return out;
  }

  // -- uses -----------------------------------------------------------------------------------------
  Status update(InstrId id) {
    const Instr& instr = program_.instrs[id];
    if (instr.in.empty() || instr.out.size() % std::max<size_t>(instr.in.size() - 1, 1) != 0) {
      return refuse("V007", "gradients and parameters do not pair up", where(program_, id));
    }
    const size_t per_param = instr.out.size() / std::max<size_t>(instr.in.size() - 1, 1);
    for (size_t i = 0; i + 1 < instr.in.size(); ++i) {
      TENON_CHECK(check_gradient(id, instr.in[i], instr.out[i * per_param].name));
    }
    for (size_t k = 0; k < instr.out.size(); ++k) {
      const Operand& out = instr.out[k];
      const auto& known = k % per_param == 0 ? program_.params : program_.states;
      const bool in_place = std::any_of(known.begin(), known.end(), [&out](const TensorInfo& tensor) {
        return tensor.name == out.name && tensor.operand.buffer == out.buffer &&
               tensor.operand.offset == out.offset && tensor.operand.dims == out.dims;
      });
      if (!in_place)
        return refuse("V007", "'" + out.name + "' is not updated where it is", where(program_, id));
      ++updates_[out.name];
    }
    return {};
  }

  // `param`: whose gradient it must be; empty: anyone's.
  Status check_gradient(InstrId id, const Operand& operand, const std::string& param) {
    const std::string tensor = content_of(operand).tensor;
    if (!param.empty() && !tensor.empty() && tensor != param + ".grad") {
      return refuse("V007", fmt::format("'{}' would be updated with '{}'", param, tensor),
                    where(program_, id));
    }
    const auto expected = expected_.find(tensor);
    return check_whole(operand, expected == expected_.end() ? 1 : expected->second, where(program_, id));
  }

  // The norm is that of every gradient, and the scale divides by the whole count.
  Status check_norm(InstrId id) {
    const Instr& instr = program_.instrs[id];
    std::set<std::string> tensors;
    for (size_t i = 0; i + 1 < instr.in.size(); ++i) tensors.insert(content_of(instr.in[i]).tensor);
    if (tensors.size() != program_.params.size() || instr.in.size() != tensors.size() + 1) {
      return refuse(
          "V007",
          fmt::format("the norm is over {} gradients, not over {}", tensors.size(), program_.params.size()),
          where(program_, id));
    }
    return check_whole(instr.in.back(), 1, where(program_, id));
  }

  Status check_whole(const Operand& operand, int expected, const std::string& place) const {
    const Content content = content_of(operand);
    if (content.mixed || content.part_of != nullptr) {
      return refuse("V007", "'" + operand.name + "' is not a sum over microbatches and ranks", place);
    }
    if (content.empty()) return refuse("V007", "no microbatch contributed to '" + operand.name + "'", place);
    std::map<std::string, std::set<int>> by_op;
    for (const auto& [key, count] : content.from) {
      if (count != 1) {
        return refuse("V007",
                      fmt::format("'{}' has '{}' of microbatch {} {} times", operand.name, key.first,
                                  key.second, count),
                      place);
      }
      by_op[key.first].insert(key.second);
    }
    for (const auto& [op, microbatches] : by_op) {
      if (static_cast<int64_t>(microbatches.size()) == program_.microbatches) continue;
      return refuse("V007",
                    fmt::format("'{}' has '{}' of {} microbatches, not of {}", operand.name, op,
                                microbatches.size(), program_.microbatches),
                    place);
    }
    if (static_cast<int>(by_op.size()) != expected) {
      return refuse(
          "V007",
          fmt::format("'{}' has contributions of {} ops, not of {}", operand.name, by_op.size(), expected),
          place);
    }
    return check_sum(operand, content, place);
  }

  Status check_sum(const Operand& operand, const Content& content, const std::string& place) const {
    for (AxisId axis : axes_) {
      const auto it = content.summed.find(axis);
      const std::string& name = program_.mesh.axes[axis].name;
      if (it == content.summed.end())
        return refuse("V007", fmt::format("'{}' is not summed over {}", operand.name, name), place);
      for (size_t j = 0; j < it->second.size(); ++j) {
        if (it->second[j] == 1) continue;
        return refuse("V007",
                      fmt::format("'{}' has the value of member {} of {} {} times", operand.name, j, name,
                                  it->second[j]),
                      place);
      }
    }
    return {};
  }

  const Program& program_;
  const bool training_;
  std::set<AxisId> axes_;                // that shard the samples
  std::map<std::string, int> expected_;  // gradient -> ops that contribute in each microbatch
  ByteMap<Held> bytes_;
  std::map<std::pair<int, std::string>, int> ops_;
  std::map<std::string, int> updates_;
};

}  // namespace

Status check_completeness(const Program& program) { return Completeness(program).run(); }

}  // namespace tenon
