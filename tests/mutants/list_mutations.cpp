// The list itself: instructions left out, repeated, exchanged, moved, and taken from another class. Once as
// the waits and the memory then are, and once planned anew, so that nothing but the meaning is wrong.
#include <fmt/format.h>

#include "mutation.h"

namespace tenon::mutants {
namespace {
namespace of_list {

constexpr size_t kMoves = 8;

using Change = std::string (*)(Program& program, InstrId id, size_t way);

std::string leave_out(Program& program, InstrId id, size_t) {
  erase_instr(program, id);
  return "left out";
}

std::string repeat(Program& program, InstrId id, size_t) {
  Instr copy = program.instrs[id];
  insert_instr(program, id, std::move(copy));
  return "repeated";
}

// Exchanges two lines and leaves waits as they are; to start behind what it waits for is up to the checks.
std::string move_to(Program& program, InstrId id, InstrId to) {
  if (to == id || to >= program.instrs.size()) return "";
  Instr moved = program.instrs[id];
  erase_instr(program, id);
  for (InstrId& wait : moved.waits) wait -= wait > id ? 1 : 0;
  insert_instr(program, to, std::move(moved));
  return fmt::format("moved to {}", to);
}

std::string exchange_with_next(Program& program, InstrId id, size_t) { return move_to(program, id, id + 1); }

std::string move_far(Program& program, InstrId id, size_t way) {
  const size_t n = program.instrs.size();
  return move_to(program, id, static_cast<InstrId>((id + (way + 1) * n / (kMoves + 1)) % n));
}

template <Change change>
std::string replanned(Program& program, InstrId id, size_t way) {
  const std::string what = change(program, id, way);
  if (!what.empty()) replan(program);
  return what;
}

size_t one(const Instr&) { return 1; }
size_t moves(const Instr&) { return kMoves; }

template <Change change>
Sites everywhere(const std::vector<Program>& programs, size_t which) {
  return at_instrs(programs[which], one, change);
}

template <Change change>
Sites everywhere_far(const std::vector<Program>& programs, size_t which) {
  return at_instrs(programs[which], moves, change);
}

// Lines of another class in place of the ones here.
Sites of_another_class(const std::vector<Program>& programs, size_t which) {
  if (programs.size() < 2) return {};
  const auto other = std::make_shared<const Program>(programs[(which + 1) % programs.size()]);
  return at_instrs(programs[which], one, [other](Program& program, InstrId id, size_t) -> std::string {
    if (id >= other->instrs.size()) return "";
    program.instrs[id] = other->instrs[id];
    return "the other class's " + called(*other, id);
  });
}

Sites whole_of_another_class(const std::vector<Program>& programs, size_t which) {
  if (programs.size() < 2) return {};
  const auto other = std::make_shared<const Program>(programs[(which + 1) % programs.size()]);
  return once(2, [other](Program& program, size_t way) -> std::string {
    if (way == 1) {
      program.instrs = other->instrs;
      return "the other class's instructions";
    }
    program = *other;
    return "the other class's program";
  });
}

constexpr Mutation kMutations[] = {
    {"Program.instrs", "one left out", everywhere<leave_out>},
    {"Program.instrs", "one left out, planned anew", everywhere<replanned<leave_out>>},
    {"Program.instrs", "one repeated", everywhere<repeat>},
    {"Program.instrs", "one repeated, planned anew", everywhere<replanned<repeat>>},
    {"Program.instrs", "two neighbours exchanged", everywhere<exchange_with_next>},
    {"Program.instrs", "two neighbours exchanged, planned anew", everywhere<replanned<exchange_with_next>>},
    {"Program.instrs", "one moved", everywhere_far<move_far>},
    {"Program.instrs", "one moved, planned anew", everywhere_far<replanned<move_far>>},
    {"Program.instrs", "one of another class", of_another_class},
    {"Program.instrs", "all of another class", whole_of_another_class},
};

}  // namespace of_list
}  // namespace

std::span<const Mutation> list_mutations() { return of_list::kMutations; }

}  // namespace tenon::mutants
