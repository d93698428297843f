// What a row says of an instruction.
#include "plan/program/contributions.h"

#include <gtest/gtest.h>

namespace tenon {
namespace {

TEST(Contributions, of_the_loss_are_made_by_kinds_whose_rows_say_so) {
  Instr instr;
  for (const char* kind :
       {"cross_entropy", "cross_entropy_join", "route_topk", "linear_cross_entropy_grad"}) {
    instr.kind = kind;
    EXPECT_TRUE(makes_loss(instr)) << kind;
  }
  instr.kind = "layernorm_wgrad";
  EXPECT_FALSE(makes_loss(instr));
}

TEST(Contributions, are_added_into_by_the_outputs_that_accumulate) {
  Instr instr;
  instr.kind = "linear_cross_entropy_grad";
  EXPECT_FALSE(adds_into(instr, 2));
  instr.accumulate = true;
  for (size_t k = 0; k < 4; ++k) EXPECT_EQ(adds_into(instr, k), k == 2);
}

Instr with_dims(const char* kind, std::vector<std::vector<int64_t>> in,
                std::vector<std::vector<int64_t>> out) {
  Instr instr;
  instr.kind = kind;
  for (auto& dims : in) instr.in.emplace_back().dims = std::move(dims);
  for (auto& dims : out) instr.out.emplace_back().dims = std::move(dims);
  return instr;
}

TEST(SizeOfLetter, is_read_off_the_operands) {
  const Instr embedding = with_dims("embedding", {{2, 3}, {50, 8}}, {{2, 3, 8}});
  EXPECT_EQ(size_of_letter(embedding, "v"), 50);
  EXPECT_EQ(size_of_letter(embedding, "s"), 3);
  EXPECT_EQ(size_of_letter(embedding, "k"), std::nullopt);
  EXPECT_EQ(size_of_letter(with_dims("rope", {{2, 3, 5, 6, 4}, {2, 3}}, {{2, 3, 5, 6, 4}}), "d"), 4);
  const Instr head =
      with_dims("linear_cross_entropy", {{2, 3, 4, 5}, {50, 4, 5}, {2, 3}}, {std::vector<int64_t>{}, {}});
  EXPECT_EQ(size_of_letter(head, "k.."), 20);
  EXPECT_EQ(size_of_letter(head, "v"), 50);
  EXPECT_EQ(size_of_letter(with_dims("all_reduce_of_something", {{2}}, {{2}}), "e"), std::nullopt);
}

TEST(FindInput, knows_the_names_of_the_row) {
  const Instr embedding = with_dims("embedding", {{2, 3}, {50, 8}}, {{2, 3, 8}});
  EXPECT_EQ(find_input(embedding, "w"), &embedding.in[1]);
  EXPECT_EQ(find_input(embedding, "x"), nullptr);
  EXPECT_EQ(find_input(with_dims("norms", {{2}}, {}), "x"), nullptr);
}

}  // namespace
}  // namespace tenon
