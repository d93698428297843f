// Fused kinds give the bits of the kinds that they stand for, one after the other.
#include <gtest/gtest.h>

#include "cases.h"

namespace tenon::test {
namespace {

struct Setting {
  std::string plugin;
  uint32_t dtype;
};

class Fused : public testing::TestWithParam<Setting> {
 protected:
  Kernels reference{"reference", 0};
  Kernels kernels{GetParam().plugin, 2, GetParam().plugin == "cpu" ? "auto" : ""};

  std::vector<CaseMaker> makers() {
    std::vector<CaseMaker> all;
    for (const auto& sizes : {small_sizes(), large_sizes()}) {
      for (const Size& size : sizes) all.emplace_back(reference, GetParam().dtype, size, 21);
    }
    return all;
  }
  std::vector<Tensor> run(const Op& op) {
    Result done = kernels.run(op);
    EXPECT_EQ(done.code, TENON_OK) << done.message;
    return std::move(done.out);
  }
};

void expect_same(const Op& op, const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].bytes(), want[i].bytes())
        << op.kind << " of " << op.in[0].elements() << ", output " << i;
  }
}

TEST_P(Fused, sum_and_norm_are_add_and_norm) {
  for (CaseMaker& make : makers()) {
    for (Op norm : {make.layernorm(), make.rmsnorm()}) {
      const Op fused = make.add_norm(norm);
      std::vector<Tensor> want = run({"add", {fused.in[0], fused.in[1]}, {fused.out[0]}, {}});
      norm.in[0] = want[0];
      for (Tensor& out : run(norm)) want.push_back(std::move(out));
      expect_same(fused, run(fused), want);
    }
  }
}

TEST_P(Fused, bias_and_gelu_are_one_after_the_other) {
  for (CaseMaker& make : makers()) {
    const Op fused = make.bias_gelu();
    std::vector<Tensor> want = run({"bias_add", fused.in, {fused.out[0]}, {}});
    want.push_back(run({"gelu", {want[0]}, {fused.out[1]}, {}})[0]);
    expect_same(fused, run(fused), want);
  }
}

// Up to 512 tokens the logits are one block, above several.
TEST_P(Fused, heads_are_their_parts) {
  std::vector<CaseMaker> all = makers();
  for (const Size& size : {Size{3, 367, 1, 33, 70, 1, 1, 2}, Size{1, 1030, 1, 20, 300, 2, 1, 2}})
    all.emplace_back(reference, GetParam().dtype, size, 22);
  for (CaseMaker& make : all) {
    const Op head = make.linear_cross_entropy(0.2);
    const Tensor &x = head.in[0], &w = head.in[1], &targets = head.in[2];
    const Tensor shape = make.real({x.dims()[0], x.dims()[1], w.dims()[0]}), rows = make.real(targets.dims());
    const Tensor logits = run({"linear", {x, w}, {shape}, {}})[0];
    std::vector<Tensor> want =
        run({"cross_entropy", {logits, targets}, {head.out[0], head.out[1], rows}, {}});
    const Tensor dlogits = run({"cross_entropy_dgrad", {logits, targets, want[2]}, {shape}, {}})[0];
    want.pop_back();
    expect_same(head, run(head), want);
    Op grad = make.linear_cross_entropy_grad(head);
    for (uint32_t flags : {uint32_t{0}, uint32_t{TENON_KERNEL_ACCUMULATE}}) {
      grad.flags = flags;
      grad.out[2] = make.random(w.dims());
      std::vector<Tensor> all_of = want;
      all_of.push_back(run({"linear_wgrad", {dlogits, x}, {grad.out[2]}, {}, flags})[0]);
      all_of.push_back(run({"linear_dgrad", {dlogits, w}, {x}, {}})[0]);
      expect_same(grad, run(grad), all_of);
    }
  }
}

std::string name_of(const testing::TestParamInfo<Setting>& info) {
  return info.param.plugin + (info.param.dtype == TENON_F32 ? "_f32" : "_f64");
}

INSTANTIATE_TEST_SUITE_P(BothPlugins, Fused,
                         testing::Values(Setting{"reference", TENON_F32}, Setting{"reference", TENON_F64},
                                         Setting{"cpu", TENON_F32}, Setting{"cpu", TENON_F64}),
                         name_of);

}  // namespace
}  // namespace tenon::test
