// What a transfer sends, as the usual algorithms do it: collectives in rings, a broadcast down a binomial
// tree.
#pragma once

#include <string>

#include "plan/program/program.h"

namespace tenon {

struct TransferCost {
  double sends = 0;  // bytes that a rank of this program sends
  std::string told;  // how that follows from the bytes of the transfer
  // On the longest way that its data takes: messages and bytes, one behind the other.
  double turns = 0;
  double passed = 0;
};

// Of a transfer.
TransferCost cost_of_transfer(const Program& program, const Instr& instr);

}  // namespace tenon
