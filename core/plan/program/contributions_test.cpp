// What of an instruction is added up over microbatches, as its row says.
#include "plan/program/contributions.h"

#include <gtest/gtest.h>

namespace tenon {
namespace {

Instr of_kind(const char* kind, size_t outputs) {
  Instr out;
  out.kind = kind;
  out.out.resize(outputs);
  return out;
}

// The outputs that count, each with the op that it is a contribution of.
std::vector<std::string> contributions(const Instr& instr) {
  std::vector<std::string> out;
  for (size_t k = 0; k < instr.out.size(); ++k)
    out.push_back(is_contribution(instr, k) ? contributing_op(instr, k) : "");
  return out;
}

using Ops = std::vector<std::string>;

TEST(Contributions, of_a_loss_are_loss_and_count_but_not_what_backward_needs) {
  EXPECT_EQ(contributions(of_kind("cross_entropy", 3)), (Ops{"cross_entropy", "cross_entropy", ""}));
  EXPECT_EQ(contributions(of_kind("cross_entropy_join", 3)),
            (Ops{"cross_entropy_join", "cross_entropy_join", ""}));
}

TEST(Contributions, of_a_router_is_its_loss_alone) {
  const Instr router = of_kind("route_topk", 4);
  EXPECT_EQ(contributions(router), (Ops{"", "", "", "route_topk"}));
  EXPECT_TRUE(is_loss(router, 3));
  EXPECT_FALSE(is_loss(router, 0));
}

TEST(Contributions, of_a_fused_kind_are_those_of_the_ops_that_it_stands_for) {
  EXPECT_EQ(contributions(of_kind("linear_cross_entropy_grad", 4)),
            (Ops{"cross_entropy", "cross_entropy", "linear_wgrad", ""}));
}

TEST(Contributions, of_a_gradient_are_all_its_outputs) {
  const Instr gradient = of_kind("layernorm_wgrad", 2);
  EXPECT_EQ(contributions(gradient), (Ops{"layernorm_wgrad", "layernorm_wgrad"}));
  EXPECT_FALSE(makes_loss(gradient));
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
