// Transfers between classes, changed at all their ends alike: so what the classes tell each other fits, and
// only what it means is wrong.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "mutation.h"

namespace tenon::mutants {
namespace {
namespace of_pair {

using Programs = std::vector<Program>;

struct End {
  size_t program = 0;
  InstrId id = 0;
};
// The instructions that are one transfer: its send and its receive, or those of all classes.
using Ends = std::vector<End>;

// In the order of their first ends: the n-th of those between two classes, or of those over all of them,
// meet.
std::vector<Ends> transfers_between(const Programs& programs) {
  std::map<std::tuple<bool, int64_t, int64_t>, std::vector<Ends>> lanes;
  for (size_t p = 0; p < programs.size(); ++p) {
    std::map<std::tuple<bool, int64_t, int64_t>, size_t> come;
    for (InstrId id = 0; id < programs[p].instrs.size(); ++id) {
      const Instr& instr = programs[p].instrs[id];
      if (std::ranges::count(instr.axes, programs[p].pipeline_axis) == 0) continue;
      const TransferKind kind = transfer_of(instr);
      const auto self = static_cast<int64_t>(p), peer = static_cast<int64_t>(instr.peer);
      auto lane = std::tuple(false, int64_t{0}, int64_t{0});
      if (kind == TransferKind::send) lane = {true, self, peer};
      if (kind == TransferKind::recv) lane = {true, peer, self};
      std::vector<Ends>& known = lanes[lane];
      const size_t n = come[lane]++;
      known.resize(std::max(known.size(), n + 1));
      known[n].push_back({p, id});
    }
  }
  std::vector<Ends> out;
  for (const auto& [lane, known] : lanes) out.insert(out.end(), known.begin(), known.end());
  return out;
}

const Instr& instr_at(const Programs& programs, const End& end) {
  return programs[end.program].instrs[end.id];
}
Instr& instr_at(Programs& programs, const End& end) { return programs[end.program].instrs[end.id]; }

const End* end_of(const Programs& programs, const Ends& ends, TransferKind kind) {
  const auto found = std::ranges::find_if(
      ends, [&](const End& end) { return transfer_of(instr_at(programs, end)) == kind; });
  return found == ends.end() ? nullptr : &*found;
}

std::string called(const Programs& programs, const Ends& ends) {
  std::string out;
  for (const End& end : ends)
    out += fmt::format("{}class {}, {}", out.empty() ? "" : " and ", end.program,
                       mutants::called(programs[end.program], end.id));
  return out;
}

// At each transfer between classes; the sites are those of the first class, though they change all.
template <class Ways, class Change>
Sites at_transfers(const Programs& programs, size_t which, Ways ways, Change change) {
  Sites out;
  if (which != 0 || programs.size() < 2) return out;
  for (const Ends& ends : transfers_between(programs)) {
    const size_t n = ways(ends);
    if (n == 0) continue;
    out.push_back({n, {}, [ends, change](Programs& changed, size_t way) {
                     const std::string where = called(changed, ends);
                     const std::string what = change(changed, ends, way);
                     return what.empty() ? what : where + ": " + what;
                   }});
  }
  return out;
}

// -- the list ---------------------------------------------------------------------------------------

template <bool anew>
Sites left_out(const Programs& programs, size_t which) {
  return at_transfers(
      programs, which, [](const Ends&) { return size_t{1}; },
      [](Programs& changed, const Ends& ends, size_t) {
        for (const End& end : ends) {
          erase_instr(changed[end.program], end.id);
          if (anew) replan(changed[end.program]);
        }
        return std::string("left out");
      });
}

template <bool anew>
Sites repeated(const Programs& programs, size_t which) {
  return at_transfers(
      programs, which, [](const Ends&) { return size_t{1}; },
      [](Programs& changed, const Ends& ends, size_t) {
        for (const End& end : ends) {
          Instr copy = instr_at(changed, end);
          insert_instr(changed[end.program], end.id, std::move(copy));
          if (anew) replan(changed[end.program]);
        }
        return std::string("repeated");
      });
}

// Of the transfers behind this one those between the same classes that are as large.
std::vector<Ends> like(const Programs& programs, const std::vector<Ends>& all, size_t first) {
  std::vector<Ends> out;
  const End* sent = end_of(programs, all[first], TransferKind::send);
  for (size_t i = first + 1; sent != nullptr && i < all.size(); ++i) {
    const End* other = end_of(programs, all[i], TransferKind::send);
    if (other == nullptr || other->program != sent->program) continue;
    const Instr &a = instr_at(programs, *sent), &b = instr_at(programs, *other);
    if (a.peer == b.peer && a.in[0].bytes() == b.in[0].bytes()) out.push_back(all[i]);
  }
  return out;
}

// What two transfers between the same classes send, exchanged; `both`: where it is received too; `reasons`:
// with the reasons, which tell what crosses.
template <bool both, bool reasons>
std::string exchange(Programs& programs, const Ends& first, const Ends& second) {
  const std::string where = called(programs, first) + " with " + called(programs, second);
  for (size_t e = 0; e < first.size(); ++e) {
    Instr &a = instr_at(programs, first[e]), &b = instr_at(programs, second[e]);
    std::swap(a.microbatch, b.microbatch);
    if (reasons) std::swap(a.why, b.why);
    if (transfer_of(a) == TransferKind::send)
      std::swap(a.in, b.in);
    else if (both)
      std::swap(a.out, b.out);
    else
      std::swap(a.out[0].name, b.out[0].name);
    replan(programs[first[e].program]);
  }
  return where + ": exchanged";
}

template <bool both, bool reasons>
Sites exchanged(const Programs& programs, size_t which) {
  Sites out;
  if (which != 0 || programs.size() < 2) return out;
  const std::vector<Ends> all = transfers_between(programs);
  for (size_t i = 0; i < all.size(); ++i) {
    const std::vector<Ends> others = like(programs, all, i);
    if (others.empty()) continue;
    out.push_back({others.size(), {}, [first = all[i], others](Programs& changed, size_t way) {
                     return exchange<both, reasons>(changed, first, others[way]);
                   }});
  }
  return out;
}

// -- what is sent -----------------------------------------------------------------------------------

struct Sent {
  Operand operand;
  int microbatch = -1;
};

// Everything of a class that is as large as what a transfer sends, with the microbatch that made it.
std::vector<Sent> as_large(const Program& program, const Operand& operand) {
  std::vector<Sent> out;
  for (const Instr& instr : program.instrs) {
    for (const Operand& other : instr.out) {
      const bool same = other.buffer == operand.buffer && other.offset == operand.offset;
      if (!same && other.bytes() == operand.bytes() && other.dtype == operand.dtype)
        out.push_back({other, instr.microbatch});
    }
  }
  return out;
}

// Another value of the same size is sent, and whoever receives claims to have it; `wanted` of those.
template <class Wanted>
Sites others_sent(const Programs& programs, size_t which, Wanted wanted) {
  Sites out;
  if (which != 0 || programs.size() < 2) return out;
  for (const Ends& ends : transfers_between(programs)) {
    const End* from = end_of(programs, ends, TransferKind::send);
    if (from == nullptr) continue;
    const Instr& send = instr_at(programs, *from);
    std::vector<Sent> others = as_large(programs[from->program], send.in[0]);
    std::erase_if(others, [&](const Sent& other) { return !wanted(send, other); });
    if (others.empty()) continue;
    out.push_back({others.size(), {}, [ends, others](Programs& changed, size_t way) {
                     const auto& [operand, microbatch] = others[way];
                     const std::string where = called(changed, ends);
                     for (const End& end : ends) {
                       Instr& instr = instr_at(changed, end);
                       instr.microbatch = microbatch;
                       if (transfer_of(instr) == TransferKind::send)
                         instr.in[0] = operand;
                       else
                         instr.out[0].name = operand.name;
                       replan(changed[end.program]);
                     }
                     return fmt::format("{}: '{}', microbatch {}", where, operand.name, microbatch);
                   }});
  }
  return out;
}

Sites other_values(const Programs& programs, size_t which) {
  return others_sent(programs, which, [](const Instr&, const Sent&) { return true; });
}

Sites other_microbatches(const Programs& programs, size_t which) {
  return others_sent(programs, which, [](const Instr& send, const Sent& other) {
    return other.operand.name == send.in[0].name && other.microbatch != send.microbatch;
  });
}

// -- how --------------------------------------------------------------------------------------------

template <auto member>
Sites numbers(const Programs& programs, size_t which) {
  return at_transfers(
      programs, which, [](const Ends&) { return kNumberWays; },
      [](Programs& changed, const Ends& ends, size_t way) {
        std::string what;
        for (const End& end : ends) what = renumber(instr_at(changed, end).*member, way);
        return what;
      });
}

Sites reductions(const Programs& programs, size_t which) {
  return at_transfers(
      programs, which, [](const Ends&) { return size_t{1}; },
      [](Programs& changed, const Ends& ends, size_t) {
        for (const End& end : ends) {
          Reduction& reduction = instr_at(changed, end).reduction;
          reduction = reduction == Reduction::sum ? Reduction::max : Reduction::sum;
        }
        return std::string("another reduction");
      });
}

// Of a broadcast: another class is the one that knows.
Sites roots(const Programs& programs, size_t which) {
  return at_transfers(
      programs, which,
      [&](const Ends& ends) {
        const bool told = end_of(programs, ends, TransferKind::broadcast) != nullptr;
        return told ? programs.size() : size_t{0};
      },
      [](Programs& changed, const Ends& ends, size_t way) {
        std::string what;
        for (const End& end : ends) {
          int32_t& root = instr_at(changed, end).peer;
          if (root != static_cast<int32_t>(way)) what = fmt::format("root {} -> {}", root, way);
          root = static_cast<int32_t>(way);
        }
        return what;
      });
}

constexpr Mutation kMutations[] = {
    {"Program.instrs", "a transfer left out at all ends", left_out<false>},
    {"Program.instrs", "a transfer left out at all ends, planned anew", left_out<true>},
    {"Program.instrs", "a transfer repeated at all ends", repeated<false>},
    {"Program.instrs", "a transfer repeated at all ends, planned anew", repeated<true>},
    {"Program.instrs", "two transfers exchanged at both ends", exchanged<true, false>},
    {"Program.instrs", "two transfers exchanged at both ends, with their reasons", exchanged<true, true>},
    {"Instr.in", "two transfers exchanged where sent, and what receives claim", exchanged<false, false>},
    {"Instr.why", "two transfers exchanged where sent, with all that receives claim", exchanged<false, true>},
    {"Instr.in", "another sent, and claimed where received", other_values},
    {"Instr.in", "that of another microbatch sent, and claimed where received", other_microbatches},
    {"Instr.microbatch", "another at all ends", numbers<&Instr::microbatch>},
    {"Instr.reduction", "the other at all ends", reductions},
    {"Instr.peer", "another root at all ends", roots},
};

}  // namespace of_pair
}  // namespace

std::span<const Mutation> pair_mutations() { return of_pair::kMutations; }

}  // namespace tenon::mutants
