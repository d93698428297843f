#include "plan/show/transfer_cost.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tenon {
namespace {

// A transfer of 8 bytes over a pipeline of n ranks, as the program of one of them has it.
TransferCost of_one(const std::string& kind, int n, int at, int peer) {
  Program program;
  program.mesh.axes = {{"pp", n}};
  program.pipeline_axis = 0;
  program.class_index = at;
  Instr instr;
  instr.kind = kind;
  instr.axes = {0};
  instr.peer = peer;
  Operand value;
  value.name = "loss";
  value.dtype = Dtype::f64;
  (kind == "recv" ? instr.out : instr.in) = {value};
  return cost_of_transfer(program, instr);
}

// Every rank but the root gets the bytes once, and somebody sends them each time.
TEST(TransferCost, of_a_broadcast_is_what_all_but_the_root_receive) {
  for (int n = 1; n <= 9; ++n) {
    for (int root = 0; root < n; ++root) {
      double sent = 0, turns = 0;
      for (int at = 0; at < n; ++at) {
        const TransferCost cost = of_one("broadcast", n, at, root);
        sent += cost.sends;
        turns = cost.turns;
        EXPECT_EQ(cost.passed, 8 * cost.turns);
      }
      EXPECT_EQ(sent, 8 * (n - 1)) << n << " from " << root;
      EXPECT_EQ(turns, std::ceil(std::log2(n)));
    }
  }
  EXPECT_EQ(of_one("broadcast", 4, 1, 1).told, "all of it to 2 of 3 others, which pass it on");
  EXPECT_EQ(of_one("broadcast", 4, 3, 1).told, "all of it to 1 of 3 others");
  EXPECT_EQ(of_one("broadcast", 4, 2, 1).told, "nothing: it receives");
}

TEST(TransferCost, of_the_other_kinds) {
  struct Expected {
    const char* kind;
    double sends, turns, passed;
  };
  for (const auto& [kind, sends, turns, passed] :
       {Expected{"all_reduce", 12, 6, 12}, Expected{"all_gather", 6, 3, 6},
        Expected{"reduce_scatter", 6, 3, 6}, Expected{"all_to_all", 6, 3, 6}, Expected{"permute", 8, 1, 8},
        Expected{"send", 8, 1, 8}, Expected{"recv", 0, 1, 8}}) {
    const TransferCost cost = of_one(kind, 4, 0, 1);
    EXPECT_EQ(cost.sends, sends) << kind;
    EXPECT_EQ(cost.turns, turns) << kind;
    EXPECT_EQ(cost.passed, passed) << kind;
    EXPECT_FALSE(cost.told.empty()) << kind;
  }
}

}  // namespace
}  // namespace tenon
