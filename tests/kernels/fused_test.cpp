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

std::string name_of(const testing::TestParamInfo<Setting>& info) {
  return info.param.plugin + (info.param.dtype == TENON_F32 ? "_f32" : "_f64");
}

INSTANTIATE_TEST_SUITE_P(BothPlugins, Fused,
                         testing::Values(Setting{"reference", TENON_F32}, Setting{"reference", TENON_F64},
                                         Setting{"cpu", TENON_F32}, Setting{"cpu", TENON_F64}),
                         name_of);

}  // namespace
}  // namespace tenon::test
