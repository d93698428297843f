#include "plan/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace tenon {
namespace {

std::string where(const Program& program, InstrId id) {
  const Instr& instr = program.instrs[id];
  const std::string name = instr.out.empty() ? "" : " " + instr.out[0].name;
  return fmt::format("{} program, instruction {} ({}{}, microbatch {})", program.name, id, instr.kind, name, instr.microbatch);
}

Error refuse(const char* code, const std::string& cause, const std::string& place) {
  return Error{code, cause, place, "this is a defect of the compiler or of a pass, not of the recipe", TENON_E_INTERNAL};
}

std::string describe(const Transfer& t) {
  return fmt::format("{} {} {} bytes over {{{}}} (instruction {})", t.kind, name_of(t.dtype), t.bytes,
                     fmt::join(t.members, ","), t.instr);
}

bool same(const Transfer& a, const Transfer& b) {
  return a.kind == b.kind && a.bytes == b.bytes && a.dtype == b.dtype && a.reduction == b.reduction;
}

// Absolute bytes of an operand: space in the top bits keeps the spaces apart.
struct Range {
  uint64_t lo, hi;
};
Range range_of(const Program& program, const Operand& operand) {
  const Buffer& buffer = program.buffers[operand.buffer];
  const uint64_t base = (static_cast<uint64_t>(buffer.space) << 60) + buffer.offset + operand.offset;
  return {base, base + operand.bytes()};
}

struct Touch {
  InstrId instr;
  bool write;
};

// Who touched which bytes: disjoint segments, split as needed.
class ByteMap {
 public:
  using Segment = std::vector<Touch>;
  // Calls visit(segment) for every piece of [lo, hi), creating what is missing.
  template <class Visit>
  void each(uint64_t lo, uint64_t hi, Visit visit) {
    split(lo);
    split(hi);
    for (uint64_t at = lo; at < hi;) {
      auto it = map_.lower_bound(at);
      if (it == map_.end() || it->first > at) {
        const uint64_t end = it == map_.end() ? hi : std::min(hi, it->first);
        it = map_.emplace(at, std::make_pair(end, Segment{})).first;
      }
      visit(it->second.second);
      at = it->second.first;
    }
  }

 private:
  void split(uint64_t at) {
    auto it = map_.upper_bound(at);
    if (it == map_.begin()) return;
    --it;
    if (it->first >= at || it->second.first <= at) return;
    const uint64_t end = it->second.first;
    it->second.first = at;
    map_.emplace(at, std::make_pair(end, it->second.second));
  }
  std::map<uint64_t, std::pair<uint64_t, Segment>> map_;
};

template <class Visit>
void each_access(const Instr& instr, Visit visit) {
  for (const Operand& operand : instr.in) visit(operand, false);
  for (const Operand& operand : instr.out) visit(operand, true);
  if (instr.workspace.buffer != kNone) visit(instr.workspace, true);
}

}  // namespace

std::vector<Transfer> transfers_of(const Program& program, int64_t rank) {
  std::vector<Transfer> out;
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    const Instr& instr = program.instrs[id];
    if (instr.lane == 0) continue;
    out.push_back({id, instr.kind, program.mesh.group(rank, instr.axes), instr.in[0].bytes(), instr.in[0].dtype,
                   instr.reduction});
  }
  return out;
}

Status check_transfers(const std::vector<std::vector<Transfer>>& per_rank) {
  std::vector<size_t> next(per_rank.size());
  const auto head = [&](size_t rank) -> const Transfer* {
    return next[rank] < per_rank[rank].size() ? &per_rank[rank][next[rank]] : nullptr;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < per_rank.size(); ++rank) {
      const Transfer* mine = head(rank);
      if (mine == nullptr || mine->members.empty() || mine->members[0] != static_cast<int32_t>(rank)) continue;
      const bool together = std::all_of(mine->members.begin(), mine->members.end(), [&](int32_t peer) {
        const Transfer* other = head(static_cast<size_t>(peer));
        return other != nullptr && other->members == mine->members;
      });
      if (!together) continue;
      for (int32_t peer : mine->members) {
        const Transfer* other = head(static_cast<size_t>(peer));
        if (same(*mine, *other)) continue;
        return refuse("V002", fmt::format("rank {} does {}, rank {} does {}", rank, describe(*mine), peer, describe(*other)), "");
      }
      for (int32_t peer : mine->members) ++next[static_cast<size_t>(peer)];
      moved = true;
    }
  }
  for (size_t rank = 0; rank < per_rank.size(); ++rank) {
    const Transfer* stuck = head(rank);
    if (stuck == nullptr) continue;
    for (int32_t peer : stuck->members) {
      const Transfer* other = head(static_cast<size_t>(peer));
      if (other != nullptr && other->members == stuck->members) continue;
      return refuse("V003", fmt::format("deadlock: rank {} waits in {}, but rank {} {}", rank, describe(*stuck), peer,
                                        other == nullptr ? "has nothing left to do" : "is at " + describe(*other)), "");
    }
  }
  return {};
}

Status check_symmetric(const Program& program) {
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    const Instr& instr = program.instrs[id];
    if ((instr.lane != 0) != (instr.kind != "slice" && !instr.axes.empty())) {
      return refuse("V002", "a transfer is not on a lane of its own, or a kernel is", where(program, id));
    }
    for (InstrId wait : instr.waits) {
      if (wait >= id) return refuse("V003", fmt::format("waits for instruction {}, which comes later", wait), where(program, id));
    }
    for (AxisId axis : instr.axes) {
      if (axis >= program.mesh.axes.size()) return refuse("V002", "runs over an axis that the mesh lacks", where(program, id));
    }
  }
  return {};
}

Status check_races(const Program& program) {
  const Order order(program);
  ByteMap bytes;
  Status status;
  for (InstrId id = 0; id < program.instrs.size() && status.ok(); ++id) {
    each_access(program.instrs[id], [&](const Operand& operand, bool write) {
      const Range range = range_of(program, operand);
      bytes.each(range.lo, range.hi, [&](ByteMap::Segment& touches) {
        for (const Touch& touch : touches) {
          if (touch.instr == id || !(write || touch.write) || order.before(touch.instr, id)) continue;
          if (!status.ok()) return;
          status = refuse("V004", fmt::format("'{}' shares bytes with instruction {} ({}), and nothing orders the two",
                                              operand.name, touch.instr, program.instrs[touch.instr].kind), where(program, id));
        }
        // What is ordered before this access cannot race with anything ordered after it.
        std::erase_if(touches, [&](const Touch& t) { return write && t.instr != id && order.before(t.instr, id); });
        touches.push_back({id, write});
      });
    });
  }
  return status;
}

Status check_memory(const Program& program) {
  uint64_t peak = 0;
  std::vector<bool> used(program.buffers.size());
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    Status status;
    each_access(program.instrs[id], [&](const Operand& operand, bool) {
      const Buffer& buffer = program.buffers[operand.buffer];
      used[operand.buffer] = true;
      const bool inside = operand.offset + operand.bytes() <= buffer.bytes &&
                          buffer.offset + buffer.bytes <= program.space_bytes[static_cast<size_t>(buffer.space)];
      if (!inside && status.ok()) status = refuse("V005", "'" + operand.name + "' reaches beyond its memory", where(program, id));
    });
    TENON_CHECK(std::move(status));
  }
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    if (used[i] && buffer.space == Space::arena) peak = std::max(peak, buffer.offset + aligned(buffer.bytes));
  }
  const uint64_t planned = program.space_bytes[static_cast<size_t>(Space::arena)];
  if (peak != planned) return refuse("V005", fmt::format("arena peak {} bytes, planned {}", peak, planned), program.name);
  return {};
}

Status check_initialised(const Program& program) {
  ByteMap bytes;
  Status status;
  for (InstrId id = 0; id < program.instrs.size() && status.ok(); ++id) {
    const Instr& instr = program.instrs[id];
    const auto read = [&](const Operand& operand) {
      if (program.buffers[operand.buffer].space != Space::arena) return;
      const Range range = range_of(program, operand);
      const bool whole_bucket = instr.kind == "add" || instr.lane != 0 || instr.kind == "slice";  // with padding
      bool any = false, all = true;
      bytes.each(range.lo, range.hi, [&](const ByteMap::Segment& s) { (s.empty() ? all : any) = s.empty() ? false : true; });
      if (!(whole_bucket ? any : all) && status.ok()) status = refuse("V006", "'" + operand.name + "' is read before it is written", where(program, id));
    };
    for (const Operand& operand : instr.in) read(operand);
    if (instr.accumulate) std::for_each(instr.out.begin(), instr.out.end(), read);
    for (const Operand& operand : instr.out) {
      const Range range = range_of(program, operand);
      bytes.each(range.lo, range.hi, [&](ByteMap::Segment& s) { s.assign(1, {id, true}); });
    }
  }
  return status;
}

namespace {

// What a piece of gradient memory stands for: which microbatches contributed (by op), and which share
// of the members of each axis it sums over.
struct Meaning {
  std::map<std::pair<std::string, int>, int> contributions;  // (op and tensor, microbatch) -> count
  std::map<AxisId, double> reduced;                          // 1: over all members
  bool operator==(const Meaning&) const = default;
};

class Completeness {
 public:
  explicit Completeness(const Program& program) : program_(program) {}

  Status run() {
    for (InstrId id = 0; id < program_.instrs.size(); ++id) {
      const Instr& instr = program_.instrs[id];
      if (instr.kind == "update") TENON_CHECK(check_update(id));
      else if (instr.phase == Phase::weight_grad && instr.kind != "add") contribute(id);
      else if (instr.kind == "add" || instr.kind == "slice" || instr.lane != 0) move(id);
    }
    for (const TensorInfo& param : program_.params) {
      const int count = updates_[param.name];
      if (program_.name == "train" && count != 1) {
        return refuse("V007", fmt::format("parameter '{}' is updated {} times in a step", param.name, count), param.name);
      }
    }
    return {};
  }

 private:
  // Memory by start address; operands of one tensor start at the same place or inside a bucket.
  std::map<uint64_t, Meaning>::iterator at(uint64_t lo) { return meaning_.find(lo); }

  void contribute(InstrId id) {
    const Instr& instr = program_.instrs[id];
    for (const Operand& out : instr.out) {
      Meaning& meaning = meaning_[range_of(program_, out).lo];
      if (!instr.accumulate) meaning = {};
      ++meaning.contributions[{fmt::format("{} {}", instr.kind, ops_[{instr.microbatch, out.name}]++), instr.microbatch}];
    }
  }

  // add, slice and collectives act on whole buckets: on every tensor inside the range.
  void move(InstrId id) {
    const Instr& instr = program_.instrs[id];
    const Range to = range_of(program_, instr.out[0]);
    const Range from = range_of(program_, instr.in.back());
    std::map<uint64_t, Meaning> moved;
    if (instr.kind == "all_to_all" || (instr.kind == "slice" && to.lo != from.lo) || instr.kind == "all_gather") {
      // Tensors no longer start where their parts do: what is left is what all of them have in common.
      Meaning common = first_in(from);
      if (instr.kind == "all_to_all") common.reduced[instr.axes[0]] += 1.0 / static_cast<double>(members(instr));
      if (instr.kind == "slice") common = first_in(from);
      spread(instr, from, to, common);
      return;
    }
    for (auto it = meaning_.lower_bound(from.lo); it != meaning_.end() && it->first < from.hi; ++it) {
      Meaning meaning = it->second;
      if (instr.kind == "all_reduce" || instr.kind == "reduce_scatter") {
        for (AxisId axis : instr.axes) meaning.reduced[axis] += 1.0;
      }
      if (instr.kind == "add") meaning = sum(meaning_[to.lo + (it->first - from.lo)], meaning);
      moved[to.lo + (it->first - from.lo)] = std::move(meaning);
    }
    for (auto& [lo, meaning] : moved) meaning_[lo] = std::move(meaning);
  }

  int64_t members(const Instr& instr) const { return program_.mesh.size(instr.axes); }

  Meaning first_in(const Range& range) {
    const auto it = meaning_.lower_bound(range.lo);
    return it != meaning_.end() && it->first < range.hi ? it->second : Meaning{};
  }

  void spread(const Instr& instr, const Range& from, const Range& to, const Meaning& meaning) {
    if (instr.kind == "all_to_all") {
      const uint64_t part = (to.hi - to.lo) / static_cast<uint64_t>(members(instr));
      for (int64_t i = 0; i < members(instr); ++i) meaning_[to.lo + static_cast<uint64_t>(i) * part] = meaning;
      return;
    }
    // Copying back into a bucket: its tensors keep their starts, and take over what was reduced.
    bool any = false;
    for (auto it = meaning_.lower_bound(to.lo); it != meaning_.end() && it->first < to.hi; ++it) {
      it->second.reduced = meaning.reduced;
      any = true;
    }
    if (!any) meaning_[to.lo] = meaning;
    (void)from;
  }

  static Meaning sum(const Meaning& a, const Meaning& b) {
    Meaning out = a;
    if (!a.reduced.empty()) {  // parts of one exchange: the same contributions, other members
      for (const auto& [axis, share] : b.reduced) out.reduced[axis] += share;
      return out;
    }
    for (const auto& [key, count] : b.contributions) out.contributions[key] += count;
    return out;
  }

  Status check_update(InstrId id) {
    const Instr& instr = program_.instrs[id];
    for (size_t i = 0; i + 1 < instr.in.size(); ++i) {
      const Operand& grad = instr.in[i];
      TENON_CHECK(check_gradient(id, grad, meaning_[range_of(program_, grad).lo]));
    }
    for (const Operand& out : instr.out) ++updates_[out.name];
    return {};
  }

  Status check_gradient(InstrId id, const Operand& grad, const Meaning& meaning) {
    std::map<std::string, std::map<int, int>> by_op;
    for (const auto& [key, count] : meaning.contributions) by_op[key.first][key.second] += count;
    if (by_op.empty()) return refuse("V007", "no microbatch contributed to '" + grad.name + "'", where(program_, id));
    for (const auto& [op, microbatches] : by_op) {
      const bool complete = static_cast<int64_t>(microbatches.size()) == program_.microbatches &&
                            std::all_of(microbatches.begin(), microbatches.end(), [](const auto& m) { return m.second == 1; });
      if (!complete) {
        return refuse("V007", fmt::format("'{}' has contributions of {} microbatches out of {} to {}, or some twice", op,
                                          microbatches.size(), program_.microbatches, grad.name), where(program_, id));
      }
    }
    for (const AxisId axis : batch_axes()) {
      const auto it = meaning.reduced.find(axis);
      const double share = it == meaning.reduced.end() ? 0 : it->second;
      if (share < 0.999 || share > 1.001) {
        return refuse("V007", fmt::format("'{}' is reduced {} times over {}, not once", grad.name, share,
                                          program_.mesh.axes[axis].name), where(program_, id));
      }
    }
    return {};
  }

  // Axes that shard the samples: those over which the token count is reduced.
  std::set<AxisId> batch_axes() const {
    std::set<AxisId> out;
    for (const Instr& instr : program_.instrs) {
      if (instr.lane != 0 && instr.in[0].dtype == Dtype::i64) out.insert(instr.axes.begin(), instr.axes.end());
    }
    return out;
  }

  const Program& program_;
  std::map<uint64_t, Meaning> meaning_;
  std::map<std::pair<int, std::string>, int> ops_;
  std::map<std::string, int> updates_;
};

constexpr int64_t kBruteForceWorld = 64;

}  // namespace

Status check_completeness(const Program& program) { return Completeness(program).run(); }

Result<VerifyReport> verify(const Program& program) {
  VerifyReport report;
  TENON_CHECK(check_symmetric(program));
  const int64_t world = program.mesh.world();
  report.passed.push_back(fmt::format("transfers match and cannot deadlock, {} ranks by symmetry", world));
  if (world <= kBruteForceWorld) {
    std::vector<std::vector<Transfer>> per_rank;
    for (int64_t rank = 0; rank < world; ++rank) per_rank.push_back(transfers_of(program, rank));
    TENON_CHECK(check_transfers(per_rank));
    report.passed.push_back(fmt::format("the same, every rank run: {} transfers each", per_rank[0].size()));
  }
  TENON_CHECK(check_races(program));
  TENON_CHECK(check_memory(program));
  TENON_CHECK(check_initialised(program));
  report.passed.push_back(fmt::format("no races, no read before a write, peak memory: {} instructions, {} buffers",
                                      program.instrs.size(), program.buffers.size()));
  TENON_CHECK(check_completeness(program));
  report.passed.push_back(fmt::format("each of {} parameters updated once from {} microbatches", program.params.size(),
                                      program.microbatches));
  return report;
}

}  // namespace tenon
