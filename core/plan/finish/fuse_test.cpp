// The pass over small programs made by hand.
#include "plan/finish/fuse.h"

#include <gtest/gtest.h>

#include "plan/program/builder.h"
#include "plan/program/contributions.h"

namespace tenon {
namespace {

class Fuse : public testing::Test {
 protected:
  ProgramBuilder builder{"train", Mesh{{{"dp", 2}}}, 2};
  FuseLimits limits;

  Operand value(const std::string& name) { return builder.scratch(name, Dtype::f32, {2, 3, 4}); }
  void push(const char* kind, std::vector<Operand> in, std::vector<Operand> out,
            Phase phase = Phase::forward) {
    Instr instr = builder.begin(kind, phase);
    instr.in = std::move(in);
    instr.out = std::move(out);
    instr.flops = 10;
    builder.push(std::move(instr));
  }
  std::string fused(const HasKernel& has_kernel = [](const Instr&) { return true; }) {
    fuse(builder.program(), limits, has_kernel);
    std::string kinds;
    for (const Instr& instr : builder.program().instrs) kinds += (kinds.empty() ? "" : " ") + instr.kind;
    return kinds;
  }
  const Instr& instr(size_t i) { return builder.program().instrs[i]; }
};

class FuseNorm : public Fuse {
 protected:
  Operand x = value("x"), y = value("y"), z = value("z"), w = value("w"), n = value("n"), r = value("r");
  void add() { push("add", {x, y}, {z}); }
  void norm() { push("rmsnorm", {z, w}, {n, r}); }
};

TEST_F(FuseNorm, a_sum_and_its_norm_are_one_instruction_that_gives_both) {
  add();
  builder.program().instrs.back().inplace = 0;
  norm();
  EXPECT_EQ(fused(), "add_rmsnorm");
  std::vector<std::string> names;
  for (const auto* operands : {&instr(0).in, &instr(0).out}) {
    for (const Operand& operand : *operands) names.push_back(operand.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"x", "y", "w", "z", "n", "r"}));
  EXPECT_EQ(instr(0).inplace, 0);
  EXPECT_EQ(instr(0).flops, 20);
}

TEST_F(FuseNorm, stays_apart_where_the_plugin_has_no_kernel) {
  add();
  norm();
  std::string asked;
  EXPECT_EQ(fused([&](const Instr& instr) {
              asked += instr.kind;
              return false;
            }),
            "add rmsnorm");
  EXPECT_EQ(asked, "add_rmsnorm");
}

TEST_F(FuseNorm, stays_apart_where_the_kernel_of_a_part_was_chosen) {
  add();
  norm();
  for (const char* part : {"add", "rmsnorm"}) {
    limits.chosen = {part};
    EXPECT_EQ(fused(), "add rmsnorm") << part;
  }
  limits.chosen = {"linear"};
  EXPECT_EQ(fused(), "add_rmsnorm");
}

TEST_F(FuseNorm, is_one_instruction_where_its_own_kernel_was_chosen_too) {
  limits.chosen = {"add", "add_rmsnorm", "gelu"};
  add();
  norm();
  EXPECT_EQ(fused(), "add_rmsnorm");
}

TEST_F(FuseNorm, of_another_sum_stays_apart) {
  add();
  push("rmsnorm", {x, w}, {n, r});
  EXPECT_EQ(fused(), "add rmsnorm");
}

TEST_F(FuseNorm, of_another_microbatch_stays_apart) {
  add();
  builder.enter(0, 1);
  norm();
  EXPECT_EQ(fused(), "add rmsnorm");
}

TEST_F(FuseNorm, lets_a_transfer_of_other_memory_start_behind_it) {
  add();
  builder.collective(TransferKind::all_reduce, {0}, Phase::step, y, y);
  norm();
  EXPECT_EQ(fused(), "add_rmsnorm all_reduce");
}

TEST_F(FuseNorm, stays_apart_around_a_transfer_that_brings_an_operand) {
  add();
  builder.collective(TransferKind::all_gather, {0}, Phase::forward, y, w);
  norm();
  EXPECT_EQ(fused(), "add all_gather rmsnorm");
}

TEST_F(FuseNorm, a_bias_and_its_activation_give_both) {
  push("bias_add", {x, w}, {z});
  push("gelu", {z}, {y});
  push("gelu_dgrad", {n, z}, {r}, Phase::input_grad);
  EXPECT_EQ(fused(), "bias_gelu gelu_dgrad");
  EXPECT_EQ(instr(0).out[0].name + instr(0).out[1].name, "zy");
}

TEST_F(FuseNorm, a_bias_and_the_activation_of_another_value_stay_apart) {
  push("bias_add", {x, w}, {z});
  push("gelu", {x}, {y});
  EXPECT_EQ(fused(), "bias_add gelu");
}

class FuseGradient : public Fuse {
 protected:
  Operand dy = value("dy"), w = value("w"), dx = value("dx"), sum = value("sum");
  void gradient() { push("linear_dgrad", {dy, w}, {dx}, Phase::input_grad); }
  void add() { builder.add(sum, dx, Phase::input_grad); }
};

TEST_F(FuseGradient, is_added_by_the_kernel_to_the_sum_that_is_there) {
  gradient();
  add();
  EXPECT_EQ(fused(), "linear_dgrad");
  EXPECT_TRUE(instr(0).accumulate);
  EXPECT_EQ(instr(0).out[0].buffer, sum.buffer);
  EXPECT_EQ(instr(0).flops, 10);
}

TEST_F(FuseGradient, stays_apart_where_sums_have_bits_of_their_own) {
  gradient();
  add();
  limits.sums = Sums::apart;
  EXPECT_EQ(fused(), "linear_dgrad add");
}

// The kernel that was chosen is asked whether it can.
TEST_F(FuseGradient, is_added_by_a_chosen_kernel_but_not_in_place_of_one) {
  gradient();
  add();
  limits.chosen = {"add"};
  EXPECT_EQ(fused(), "linear_dgrad add");
  limits.chosen = {"linear_dgrad"};
  EXPECT_EQ(fused([](const Instr&) { return false; }), "linear_dgrad add");
  EXPECT_EQ(fused(), "linear_dgrad");
}

TEST_F(FuseGradient, stays_apart_where_it_is_used_by_others_too) {
  gradient();
  add();
  push("linear_wgrad", {dx, dy}, {value("dw")});
  EXPECT_EQ(fused(), "linear_dgrad add linear_wgrad");
}

TEST_F(FuseGradient, stays_apart_where_it_is_an_output_of_the_step) {
  gradient();
  add();
  builder.program().outputs["logits"] = dx;
  EXPECT_EQ(fused(), "linear_dgrad add");
}

TEST_F(FuseGradient, stays_apart_where_the_sum_lies_elsewhere) {
  gradient();
  push("add", {sum, dx}, {value("z")});
  EXPECT_EQ(fused(), "linear_dgrad add");
}

TEST_F(FuseGradient, stays_apart_where_the_kernel_reads_the_sum) {
  push("linear_dgrad", {sum, w}, {dx});
  add();
  EXPECT_EQ(fused(), "linear_dgrad add");
}

class FuseHead : public Fuse {
 protected:
  Operand x = value("x"), w = builder.scratch("w", Dtype::f32, {5, 4}), targets = value("targets");
  Operand logits = value("logits"), loss = value("loss"), count = value("count"), lse = value("lse");
  Operand dw = value("dw"), dx = value("dx");
  void forward() {
    push("linear", {x, w}, {logits});
    push("cross_entropy", {logits, targets}, {loss, count, lse});
  }
  void backward() {
    push("cross_entropy_dgrad", {logits, targets, lse}, {logits}, Phase::input_grad);
    push("linear_wgrad", {logits, x}, {dw}, Phase::weight_grad);
    push("linear_dgrad", {logits, w}, {dx}, Phase::input_grad);
  }
};

TEST_F(FuseHead, with_its_loss_alone_is_one_instruction) {
  forward();
  EXPECT_EQ(fused(), "linear_cross_entropy");
  EXPECT_EQ(instr(0).out.size(), 2u);
}

TEST_F(FuseHead, with_loss_and_gradients_is_one_instruction_that_may_accumulate_into_the_weight) {
  forward();
  backward();
  builder.program().instrs[3].accumulate = true;
  EXPECT_EQ(fused(), "linear_cross_entropy_grad");
  EXPECT_EQ(instr(0).phase, Phase::weight_grad);
  for (size_t k = 0; k < 4; ++k) EXPECT_EQ(adds_into(instr(0), k), k == 2);
}

TEST_F(FuseHead, lets_the_sum_of_losses_wait) {
  const Operand sum = value("sum");
  forward();
  builder.add(sum, loss, Phase::weight_grad);
  backward();
  EXPECT_EQ(fused(), "linear_cross_entropy_grad add");
}

TEST_F(FuseHead, keeps_logits_that_others_read) {
  forward();
  push("slice", {logits}, {value("part")});
  EXPECT_EQ(fused(), "linear cross_entropy slice");
}

TEST_F(FuseHead, of_another_weight_in_backward_stays_apart) {
  forward();
  backward();
  builder.program().instrs[4].in[1] = x;
  EXPECT_EQ(fused(), "linear cross_entropy cross_entropy_dgrad linear_wgrad linear_dgrad");
}

}  // namespace
}  // namespace tenon
