// The fields of an instruction other than its operands.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "mutation.h"

namespace tenon::mutants {
namespace {
namespace of_instr {

using Programs = std::vector<Program>;

template <auto member>
Sites numbers(const Programs& programs, size_t which) {
  return at_instrs(
      programs[which], [](const Instr&) { return kNumberWays; },
      [](Program& program, InstrId id, size_t way) { return renumber(program.instrs[id].*member, way); });
}

template <auto member>
Sites flips(const Programs& programs, size_t which) {
  return at_instrs(
      programs[which], [](const Instr&) { return size_t{1}; },
      [](Program& program, InstrId id, size_t) {
        auto& field = program.instrs[id].*member;
        field = !field;
        return std::string("flipped");
      });
}

// -- kind -------------------------------------------------------------------------------------------

// Kinds that occur with as many operands, and the transfers.
Sites kinds(const Programs& programs, size_t which) {
  std::map<std::pair<size_t, size_t>, std::set<std::string>> known;
  for (const Instr& instr : programs[which].instrs)
    known[{instr.in.size(), instr.out.size()}].insert(instr.kind);
  for (const TransferRow& row : transfer_table()) known[{1, 1}].insert(row.name);
  for (auto& [arity, kinds] : known) kinds.insert("no_such_kind");
  const auto shared = std::make_shared<const decltype(known)>(std::move(known));
  const auto of = [shared](const Instr& instr) -> const std::set<std::string>& {
    return shared->at({instr.in.size(), instr.out.size()});
  };
  return at_instrs(
      programs[which], [of](const Instr& instr) { return of(instr).size(); },
      [of](Program& program, InstrId id, size_t way) -> std::string {
        Instr& instr = program.instrs[id];
        const std::string& other = *std::next(of(instr).begin(), static_cast<std::ptrdiff_t>(way));
        if (other == instr.kind) return "";
        instr.kind = other;
        return "becomes " + other;
      });
}

Sites phases(const Programs& programs, size_t which) {
  return at_instrs(
      programs[which], [](const Instr&) { return size_t{4}; },
      [](Program& program, InstrId id, size_t way) -> std::string {
        Phase& phase = program.instrs[id].phase;
        if (phase == static_cast<Phase>(way)) return "";
        phase = static_cast<Phase>(way);
        return std::string("phase ") + name_of(phase);
      });
}

Sites lanes(const Programs& programs, size_t which) {
  const size_t n = programs[which].lanes.size() + 1;
  return at_instrs(
      programs[which], [n](const Instr&) { return n; },
      [](Program& program, InstrId id, size_t way) -> std::string {
        uint32_t& lane = program.instrs[id].lane;
        if (lane == way) return "";
        lane = static_cast<uint32_t>(way);
        return fmt::format("on lane {}", way);
      });
}

// -- attributes -------------------------------------------------------------------------------------

constexpr size_t kAttrWays = 6;  // of each

std::string change_attr(Attr& attr, size_t way) {
  if (auto* whole = std::get_if<int64_t>(&attr)) return renumber(*whole, way);
  double& number = std::get<double>(attr);
  const double before = number;
  constexpr double kFactors[] = {2, 0.5, -1, 0, 1.01};
  number *= kFactors[way];
  if (number == before) number += 1;
  return fmt::format("{} -> {}", before, number);
}

Sites attributes(const Programs& programs, size_t which) {
  return at_instrs(
      programs[which], [](const Instr& instr) { return instr.attrs.size() * kAttrWays; },
      [](Program& program, InstrId id, size_t way) -> std::string {
        Attrs attrs = program.instrs[id].attrs;
        const auto at = std::next(attrs.begin(), static_cast<std::ptrdiff_t>(way / kAttrWays));
        const std::string name = at->first;
        if (way % kAttrWays == kAttrWays - 1) {
          attrs.erase(at);
          program.instrs[id].attrs = attrs;
          return "attribute " + name + " left out";
        }
        const std::string what = change_attr(at->second, way % kAttrWays);
        program.instrs[id].attrs = attrs;
        return what.empty() ? what : "attribute " + name + ": " + what;
      });
}

Sites more_attributes(const Programs& programs, size_t which) {
  return at_instrs(
      programs[which], [](const Instr&) { return size_t{2}; },
      [](Program& program, InstrId id, size_t way) {
        SharedAttrs& attrs = program.instrs[id].attrs;
        attrs = attrs.with(way == 0 ? "no_such_attribute" : "start", int64_t{1});
        return std::string(way == 0 ? "an attribute that no kind has" : "start=1");
      });
}

// -- transfers --------------------------------------------------------------------------------------

Sites axes(const Programs& programs, size_t which) {
  const Program& program = programs[which];
  return at_instrs(
      program, [&program](const Instr& instr) { return axes_ways(program, instr.axes); },
      [](Program& changed, InstrId id, size_t way) {
        return change_axes(changed, changed.instrs[id].axes, way);
      });
}

Sites reductions(const Programs& programs, size_t which) {
  return at_instrs(
      programs[which], [](const Instr& instr) { return size_t{is_transfer(instr) ? 1u : 0u}; },
      [](Program& program, InstrId id, size_t) {
        Reduction& reduction = program.instrs[id].reduction;
        reduction = reduction == Reduction::sum ? Reduction::max : Reduction::sum;
        return std::string("another reduction");
      });
}

Sites inplaces(const Programs& programs, size_t which) {
  return at_instrs(
      programs[which], [](const Instr& instr) { return instr.in.size() + 2; },
      [](Program& program, InstrId id, size_t way) -> std::string {
        int& inplace = program.instrs[id].inplace;
        const int other = static_cast<int>(way) - 1;
        if (inplace == other) return "";
        inplace = other;
        return fmt::format("in place of {}", other);
      });
}

Sites layouts(const Programs& programs, size_t which) {
  const size_t n = programs[which].layouts.size() + 2;
  return at_instrs(
      programs[which], [n](const Instr&) { return n; },
      [](Program& program, InstrId id, size_t way) -> std::string {
        int32_t& layout = program.instrs[id].layout;
        const int32_t other = static_cast<int32_t>(way) - 1;
        if (layout == other) return "";
        layout = other;
        return fmt::format("layout {}", other);
      });
}

// -- waits ------------------------------------------------------------------------------------------

Sites one_wait_less(const Programs& programs, size_t which) {
  return at_instrs(
      programs[which], [](const Instr& instr) { return instr.waits.size(); },
      [](Program& program, InstrId id, size_t way) {
        auto& waits = program.instrs[id].waits;
        const InstrId wait = waits[way];
        waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(way));
        return fmt::format("no wait for {}", wait);
      });
}

Sites no_waits(const Programs& programs, size_t which) {
  return at_instrs(
      programs[which], [](const Instr& instr) { return size_t{instr.waits.empty() ? 0u : 1u}; },
      [](Program& program, InstrId id, size_t) {
        program.instrs[id].waits.clear();
        return std::string("no waits");
      });
}

Sites other_waits(const Programs& programs, size_t which) {
  return at_instrs(
      programs[which], [](const Instr& instr) { return 3 * instr.waits.size(); },
      [](Program& program, InstrId id, size_t way) {
        InstrId& wait = program.instrs[id].waits[way / 3];
        const InstrId before = wait;
        wait = way % 3 == 0 ? wait - 1 : way % 3 == 1 ? wait + 1 : id;
        return fmt::format("waits for {}, not {}", wait, before);
      });
}

Sites more_waits(const Programs& programs, size_t which) {
  const auto n = static_cast<InstrId>(programs[which].instrs.size());
  return at_instrs(
      programs[which], [](const Instr&) { return size_t{4}; },
      [n](Program& program, InstrId id, size_t way) -> std::string {
        const InstrId others[] = {id / 2, id - 1, id, n - 1};
        if (others[way] >= n) return "";
        program.instrs[id].waits.push_back(others[way]);
        return fmt::format("waits for {} too", others[way]);
      });
}

Sites no_waits_at_all(const Programs&, size_t) {
  return once(1, [](Program& program, size_t) -> std::string {
    bool some = false;
    for (Instr& instr : program.instrs) {
      some = some || !instr.waits.empty();
      instr.waits.clear();
    }
    return some ? "nobody waits" : "";
  });
}

// -- what is said of it -----------------------------------------------------------------------------

Sites flops(const Programs& programs, size_t which) {
  return at_instrs(
      programs[which], [](const Instr&) { return size_t{1}; },
      [](Program& program, InstrId id, size_t) {
        program.instrs[id].flops = 2 * program.instrs[id].flops + 1;
        return std::string("more flops");
      });
}

Sites reasons(const Programs& programs, size_t which) {
  return at_instrs(
      programs[which], [](const Instr&) { return size_t{5}; },
      [](Program& program, InstrId id, size_t way) {
        auto& [because, tree, op, value, stage] = program.instrs[id].why;
        if (way == 0) because = because == Why::Because::op ? Why::Because::tied : Why::Because::op;
        if (way == 1) tree = !tree;
        if (way == 2) ++op;
        if (way == 3) ++value;
        if (way == 4) ++stage;
        return std::string("another reason");
      });
}

Sites fused(const Programs& programs, size_t which) {
  return at_instrs(
      programs[which], [](const Instr&) { return size_t{1}; },
      [](Program& program, InstrId id, size_t) {
        auto& fused = program.instrs[id].fused;
        if (fused.empty())
          fused.emplace_back();
        else
          fused.pop_back();
        return std::string("made of others");
      });
}

constexpr Mutation kMutations[] = {
    {"Instr.kind", "another", kinds},
    {"Instr.phase", "another", phases},
    {"Instr.microbatch", "another", numbers<&Instr::microbatch>},
    {"Instr.layer", "another", numbers<&Instr::layer>},
    {"Instr.stage", "another", numbers<&Instr::stage>},
    {"Instr.lane", "another", lanes},
    {"Instr.attrs", "another value, or none", attributes},
    {"Instr.attrs", "one more", more_attributes},
    {"Instr.accumulate", "flipped", flips<&Instr::accumulate>},
    {"Instr.inplace", "another", inplaces},
    {"Instr.axes", "others, or in another order", axes},
    {"Instr.offset_step", "another", numbers<&Instr::offset_step>},
    {"Instr.reduction", "the other", reductions},
    {"Instr.peer", "another", numbers<&Instr::peer>},
    {"Instr.layout", "another", layouts},
    {"Instr.flops", "more", flops},
    {"Instr.waits", "one left out", one_wait_less},
    {"Instr.waits", "all of one left out", no_waits},
    {"Instr.waits", "one for another", other_waits},
    {"Instr.waits", "one more", more_waits},
    {"Instr.waits", "all left out", no_waits_at_all},
    {"Instr.why", "another", reasons},
    {"Instr.fused", "another", fused},
};

}  // namespace of_instr
}  // namespace

std::span<const Mutation> instr_mutations() { return of_instr::kMutations; }

}  // namespace tenon::mutants
