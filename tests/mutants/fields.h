// Every field of a program, and how it is changed, or why nothing that runs reads it.
#pragma once

#include <span>
#include <vector>

namespace tenon::mutants {

struct Field {
  const char* name;         // "Instr.waits"
  const char* unread = "";  // why nothing reads it; empty: it is changed, see mutations()
};
// Of all structs. What nothing reads is changed too where that is easy: it must be refused or make no
// difference.
std::vector<Field> fields();

}  // namespace tenon::mutants
