// A single change of a compiled program: where, and in how many ways. Or one that two classes make alike, so
// that what they tell each other still fits.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "plan/program/program.h"

namespace tenon::mutants {

// A place at which a program can be changed.
struct Site {
  size_t ways = 1;
  // Makes the change number `way`, below `ways`, and says what it was; empty: nothing is changed by it.
  std::function<std::string(Program& program, size_t way)> change;
  // Instead of that: to the programs of all classes.
  std::function<std::string(std::vector<Program>& programs, size_t way)> change_all = {};

  std::string apply(std::vector<Program>& programs, size_t which, size_t way) const {
    return change_all ? change_all(programs, way) : change(programs[which], way);
  }
};

// One kind of change of one field.
struct Mutation {
  const char* field;  // "Instr.waits", a row of fields.h
  const char* name;   // "one left out"
  // Where in program `which` of all classes'. The sites hold nothing of them.
  std::vector<Site> (*sites)(const std::vector<Program>& programs, size_t which);
};

std::span<const Mutation> mutations();

// Of the parts of a program; mutations() is all of them.
std::span<const Mutation> list_mutations();     // instructions left out, repeated, moved
std::span<const Mutation> instr_mutations();    // their other fields
std::span<const Mutation> operand_mutations();  // what they read and write
std::span<const Mutation> memory_mutations();   // buffers and spaces
std::span<const Mutation> program_mutations();  // inputs, outputs, axes and the rest
std::span<const Mutation> tensor_mutations();   // parameters and states
std::span<const Mutation> layout_mutations();   // buckets
std::span<const Mutation> pair_mutations();     // both ends of a transfer between classes

// -- what they are made of --------------------------------------------------------------------------

using Sites = std::vector<Site>;
// "instr 12 (linear y)"
std::string called(const Program& program, InstrId id);
// A site for each instruction at which `ways` of it is not 0; `change` is given the program, its number and
// the way.
template <class Ways, class Change>
Sites at_instrs(const Program& program, Ways ways, Change change) {
  Sites out;
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    const size_t n = ways(program.instrs[id]);
    if (n == 0) continue;
    out.push_back({n, [id, change](Program& changed, size_t way) {
                     const std::string where = called(changed, id);
                     const std::string what = change(changed, id, way);
                     return what.empty() ? what : where + ": " + what;
                   }});
  }
  return out;
}

// The same for the elements of a list of the program.
template <class T, class Ways, class Change>
Sites at_each(const Program& program, std::vector<T> Program::*list, Ways ways, Change change) {
  Sites out;
  for (size_t i = 0; i < (program.*list).size(); ++i) {
    const size_t n = ways((program.*list)[i]);
    if (n == 0) continue;
    out.push_back({n, [i, list, change](Program& changed, size_t way) {
                     const std::string what = change(changed, (changed.*list)[i], way);
                     return what.empty() ? what : "number " + std::to_string(i) + ": " + what;
                   }});
  }
  return out;
}

// One site.
template <class Change>
Sites once(size_t ways, Change change) {
  return {{ways, change}};
}

// Other numbers than `value`, each in one way.
constexpr size_t kNumberWays = 5;
int64_t other_number(int64_t value, size_t way);
// Sets a number to another one and says so; empty where that is the same.
template <class T>
std::string renumber(T& field, size_t way) {
  const T before = field;
  field = static_cast<T>(other_number(static_cast<int64_t>(before), way));
  if (field == before) return "";
  return std::to_string(static_cast<int64_t>(before)) + " -> " + std::to_string(static_cast<int64_t>(field));
}

// A list of axes with one left out, added, in reverse, or replaced.
size_t axes_ways(const Program& program, const std::vector<AxisId>& axes);
std::string change_axes(const Program& program, std::vector<AxisId>& axes, size_t way);

// A list with one entry left out, repeated, or exchanged with the next.
template <class T>
size_t list_ways(const std::vector<T>& list) {
  return 3 * list.size();
}
template <class T>
std::string change_list(std::vector<T>& list, size_t way) {
  const size_t at = way / 3;
  const auto where = list.begin() + static_cast<std::ptrdiff_t>(at);
  switch (way % 3) {
    case 0: list.erase(where); return "entry " + std::to_string(at) + " left out";
    case 1: {
      const T copy = *where;
      list.insert(where, copy);
      return "entry " + std::to_string(at) + " repeated";
    }
    default:
      if (at + 1 >= list.size()) return "";
      std::swap(list[at], list[at + 1]);
      return "entries " + std::to_string(at) + " and " + std::to_string(at + 1) + " exchanged";
  }
}

// Left out, or put in front of number `id`, with the waits of the others kept right.
void erase_instr(Program& program, InstrId id);
void insert_instr(Program& program, InstrId id, Instr added);
// Waits and offsets as the compiler would have made them.
void replan(Program& program);

}  // namespace tenon::mutants
