// The backward ops of kernels/reference against central differences of its forward ops, in f64.
#include <gtest/gtest.h>

#include <cmath>

#include "cases.h"

namespace tenon::test {
namespace {

// sum_i w_i out_i of output 0, and the auxiliary loss where there is one; the loss itself where the output
// is one.
double weighted(const Kernels& kernels, const Op& op, const Tensor& w) {
  const Result done = kernels.run(op);
  EXPECT_EQ(done.code, TENON_OK) << done.message;
  double sum = op.kind == "route_topk" ? done.out[3].at(0) : 0;
  for (int64_t i = 0; i < w.elements(); ++i) sum += w.at(i) * done.out[0].at(i);
  return sum;
}

// The difference has an error of about h^2 |f'''| + 1e-16 |f| / h, which is near 1e-10 at h = 1e-5 for
// values near 1; 1e-7 leaves room for third derivatives and sums of some hundred terms, and is far below any
// wrong term.
constexpr double kStep = 1e-5, kTolerance = 1e-7;

void expect_gradient(const Kernels& kernels, const Op& forward, size_t input, const Tensor& w,
                     const Tensor& gradient) {
  double largest = 1;
  for (int64_t i = 0; i < gradient.elements(); ++i) largest = std::fmax(largest, std::fabs(gradient.at(i)));
  for (int64_t i = 0; i < gradient.elements(); ++i) {
    Op moved = forward;
    const double x = forward.in[input].at(i);
    moved.in[input].set(i, x + kStep);
    const double up = weighted(kernels, moved, w);
    moved.in[input].set(i, x - kStep);
    const double slope = (up - weighted(kernels, moved, w)) / (2 * kStep);
    ASSERT_NEAR(gradient.at(i), slope, kTolerance * largest)
        << forward.kind << " input " << input << " [" << i << "]";
  }
}

std::vector<Tensor> outputs(const Kernels& kernels, const Op& op) {
  Result done = kernels.run(op);
  EXPECT_EQ(done.code, TENON_OK) << done.message;
  return std::move(done.out);
}

void check(const Kernels& kernels, CaseMaker& make, const Op& forward) {
  Tensor w = make.random(forward.out[0].dims());
  if (forward.kind == "cross_entropy") {
    w = Tensor(TENON_F64, {});
    w.set(0, 1);
  }
  for (const Op& back : make.backward(forward, w)) {
    const std::vector<Tensor> gradients = outputs(kernels, back);
    const std::vector<size_t> inputs = gradients_of(back.kind, forward.kind);
    ASSERT_EQ(gradients.size(), inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) expect_gradient(kernels, forward, inputs[i], w, gradients[i]);
  }
}

class Gradients : public testing::TestWithParam<Size> {
 protected:
  Kernels kernels{"reference", 0};
  CaseMaker make{kernels, TENON_F64, GetParam(), 11};
};

TEST_P(Gradients, of_embedding_match_differences) { check(kernels, make, make.embedding()); }
TEST_P(Gradients, of_layernorm_match_differences) { check(kernels, make, make.layernorm()); }
TEST_P(Gradients, of_rmsnorm_match_differences) { check(kernels, make, make.rmsnorm()); }
TEST_P(Gradients, of_linear_match_differences) {
  check(kernels, make, make.linear());
  check(kernels, make, make.linear_structured());
}
TEST_P(Gradients, of_bias_add_match_differences) { check(kernels, make, make.bias_add()); }
TEST_P(Gradients, of_rope_match_differences) {
  check(kernels, make, make.rope(false));
  check(kernels, make, make.rope(true));
}
TEST_P(Gradients, of_attention_match_differences) {
  using P = CaseMaker::Positions;
  for (P positions : {P::causal, P::offset, P::shuffled, P::blind}) {
    check(kernels, make, make.attention(positions));
  }
}
TEST_P(Gradients, of_gelu_match_differences) { check(kernels, make, make.gelu()); }
TEST_P(Gradients, of_swiglu_match_differences) { check(kernels, make, make.swiglu()); }
TEST_P(Gradients, of_dropout_match_differences) { check(kernels, make, make.dropout(0.3)); }
TEST_P(Gradients, of_cross_entropy_match_differences) {
  for (double padding : {0.0, 0.5, 1.0}) check(kernels, make, make.cross_entropy(padding));
}

TEST_P(Gradients, of_every_other_op_match_differences) {
  for (const std::string& kind : kinds_without_maker()) check(kernels, make, make.of_signature(kind));
}

TEST_P(Gradients, of_linear_cross_entropy_match_differences) {
  Tensor one(TENON_F64, {});
  one.set(0, 1);
  for (double padding : {0.0, 0.5, 1.0}) {
    const Op head = make.linear_cross_entropy(padding);
    const Result done = kernels.run(make.linear_cross_entropy_grad(head));
    ASSERT_EQ(done.code, TENON_OK) << done.message;
    expect_gradient(kernels, head, 1, one, done.out[2]);
    expect_gradient(kernels, head, 0, one, done.out[3]);
  }
}

// Away from ties: a difference across one would be that of another choice.
TEST_P(Gradients, of_route_topk_match_differences) {
  for (bool renormalise : {false, true}) {
    for (double aux : {0.0, 0.7}) {
      check(kernels, make, make.route_topk(CaseMaker::Logits::distinct, renormalise, aux));
    }
  }
}
TEST_P(Gradients, of_dispatch_match_differences) { check(kernels, make, make.dispatch()); }
TEST_P(Gradients, of_combine_match_differences) { check(kernels, make, make.combine()); }
TEST_P(Gradients, of_grouped_linear_match_differences) {
  check(kernels, make, make.grouped_linear());
  check(kernels, make, make.grouped_linear_structured());
}

INSTANTIATE_TEST_SUITE_P(OddShapes, Gradients, testing::ValuesIn(small_sizes()));

// Accumulation is what the backward ops of a shared parameter rely on.
TEST(GradientSums, that_accumulate_add_to_what_is_there) {
  const Kernels kernels("reference", 0);
  CaseMaker make(kernels, TENON_F64, {2, 3, 3, 5, 7, 2, 1, 4}, 3);
  for (const Op& forward : {make.embedding(), make.layernorm(), make.rmsnorm(), make.linear(),
                            make.bias_add(), make.grouped_linear()}) {
    Op back = make.backward(forward, make.random(forward.out[0].dims())).back();
    const Result fresh = kernels.run(back);
    back.flags = TENON_KERNEL_ACCUMULATE;
    for (Tensor& t : back.out) t = make.random(t.dims());
    const Result more = kernels.run(back);
    for (size_t k = 0; k < back.out.size(); ++k) {
      for (int64_t i = 0; i < back.out[k].elements(); ++i) {
        EXPECT_DOUBLE_EQ(more.out[k].at(i), back.out[k].at(i) + fresh.out[k].at(i)) << back.kind;
      }
    }
  }
}

}  // namespace
}  // namespace tenon::test
