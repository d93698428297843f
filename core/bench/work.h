// What an instruction has to do at least, whoever does it.
#pragma once

#include "plan/program/program.h"

namespace tenon::bench {

struct Work {
  std::string name;  // with its shape: "linear 1024 x 3072 x 768"
  double flops = 0;  // as many f32 operations: one of f64 counts as two
  double bytes = 0;  // read and written, each operand once; of tables only the rows that are looked up
};

Work work_of(const Instr& instr);

}  // namespace tenon::bench
