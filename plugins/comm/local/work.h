// One member's part of an operation whose members have all arrived: it reads their memory directly.
#pragma once

#include <vector>

#include "kit/op.hpp"
#include "kit/tree.hpp"

namespace tenon::comm_local {

// Room for pointers to every member's memory, made once per prepared operation.
struct WorkSpace {
  explicit WorkSpace(int n) : sources(static_cast<size_t>(n)), outs(static_cast<size_t>(n)) {}
  std::vector<const void*> sources;
  std::vector<void*> outs;
};

// `ops` by slot (see Instance). `reducer` is that of mine, NULL if mine does not reduce.
void do_part(const std::vector<const comm::Op*>& ops, const comm::Op& mine, comm::Reducer reducer,
             WorkSpace& space);

}  // namespace tenon::comm_local
