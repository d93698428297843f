// The memory of one rank, and what a program may not do to it.
#pragma once

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "plan/program/program.h"

namespace tenon::mutants {

// What no run survives: a step that reaches beyond its memory, gets stuck, or does what a plugin refuses.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// What a plugin refuses while instructions are prepared, so that no step begins.
struct Refused : Fault {
  using Fault::Fault;
};

inline void require(bool holds, const char* what) {
  if (!holds) throw Fault(what);
}

using SpaceBytes = std::array<uint64_t, kNumSpaces>;

class RankMemory {
 public:
  explicit RankMemory(const SpaceBytes& bytes);  // zeroed

  // Of bytes [offset, offset + bytes) of a buffer. Fault where the space lacks them.
  char* at(const Program& program, BufferId buffer, uint64_t offset, uint64_t bytes);
  char* at(const Program& program, const Operand& operand);
  // What earlier steps left in the arena says nothing: it is overwritten with NaN.
  void poison_arena();

 private:
  std::array<std::vector<char>, kNumSpaces> spaces_;
};

// The bytes of an operand; Fault where its dims have none.
uint64_t bytes_of(const Operand& operand);

}  // namespace tenon::mutants
