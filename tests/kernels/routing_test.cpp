// What route_topk promises beyond gradients, on examples small enough to do by hand: order of choices and
// slots, ties, what is dropped, the auxiliary loss, and that nothing but its own group matters to a token.
#include <gtest/gtest.h>

#include <cmath>

#include "cases.h"

namespace tenon::test {
namespace {

constexpr int64_t kTokens = 4, kExperts = 3;

class Routing : public testing::TestWithParam<const char*> {
 protected:
  struct Settings {
    int64_t k = 1, group = kTokens, capacity = kTokens;
    bool renormalise = false;
    double aux = 1;
  };
  static Op route(const std::vector<double>& logits, int64_t batch, const Settings& s) {
    const int64_t seq = static_cast<int64_t>(logits.size()) / kExperts / batch;
    Tensor in(TENON_F64, {batch, seq, kExperts});
    for (size_t i = 0; i < logits.size(); ++i) in.set(static_cast<int64_t>(i), logits[i]);
    return {"route_topk",
            {in, Tensor(TENON_I64, {batch})},
            {Tensor(TENON_F64, {batch, seq, s.k}), Tensor(TENON_I32, {batch, seq, s.k}),
             Tensor(TENON_I32, {batch, seq, s.k}), Tensor(TENON_F64, {})},
            {integer("k", s.k), integer("group", s.group), integer("capacity", s.capacity),
             integer("renormalise", s.renormalise ? 1 : 0), number("aux", s.aux)}};
  }
  std::vector<Tensor> run(const Op& op) const {
    Result done = kernels.run(op);
    EXPECT_EQ(done.code, TENON_OK) << done.message;
    return std::move(done.out);
  }
  static std::vector<double> values(const Tensor& t) {
    std::vector<double> out;
    for (int64_t i = 0; i < t.elements(); ++i) out.push_back(t.at(i));
    return out;
  }
  using Values = std::vector<double>;

  Kernels kernels{GetParam(), 2, std::string(GetParam()) == "cpu" ? "auto" : ""};
};

const std::vector<double> kLogits = {3, 2, 1, 3, 1, 2, 1, 3, 2, 3, 2, 1};  // of four tokens for three experts

TEST_P(Routing, takes_the_largest_logits_in_order) {
  const auto out = run(route(kLogits, 1, {.k = 2}));
  EXPECT_EQ(values(out[1]), (Values{0, 1, 0, 2, 1, 2, 0, 1}));
}

TEST_P(Routing, breaks_ties_by_the_lower_index) {
  const auto out = run(route({1, 1, 1, 0, 1, 1, 2, 2, 5, 1, 0, 1}, 1, {.k = 2}));
  EXPECT_EQ(values(out[1]), (Values{0, 1, 1, 2, 2, 0, 0, 2}));
}

TEST_P(Routing, gives_slots_to_first_choices_before_second_ones) {
  // First choices: 0 0 1 0; second ones: 1 2 2 1.
  const auto out = run(route(kLogits, 1, {.k = 2, .capacity = 2}));
  EXPECT_EQ(values(out[2]), (Values{0, 1, 1, 0, 0, 1, -1, -1}));
  const auto roomy = run(route(kLogits, 1, {.k = 2, .capacity = 4}));
  EXPECT_EQ(values(roomy[2]), (Values{0, 1, 1, 0, 0, 1, 2, 2}));
}

TEST_P(Routing, counts_slots_anew_in_every_group) {
  const auto out = run(route(kLogits, 1, {.k = 2, .group = 2, .capacity = 1}));
  EXPECT_EQ(values(out[2]), (Values{0, 0, -1, 0, 0, 0, 0, -1}));
}

TEST_P(Routing, leaves_the_gate_of_a_dropped_choice_as_it_was) {
  const auto tight = run(route(kLogits, 1, {.k = 2, .capacity = 1})),
             roomy = run(route(kLogits, 1, {.k = 2}));
  EXPECT_EQ(values(tight[0]), values(roomy[0]));
}

TEST_P(Routing, gates_are_probabilities_or_shares_of_the_chosen) {
  const double sum = std::exp(3) + std::exp(2) + std::exp(1);
  EXPECT_NEAR(run(route(kLogits, 1, {.k = 2}))[0].at(0), std::exp(3) / sum, 1e-15);
  const auto shares = run(route(kLogits, 1, {.k = 2, .renormalise = true}));
  EXPECT_NEAR(shares[0].at(0), 1 / (1 + std::exp(-1)), 1e-15);
  EXPECT_NEAR(shares[0].at(0) + shares[0].at(1), 1, 1e-15);
}

TEST_P(Routing, auxiliary_loss_is_the_coefficient_per_token_when_balanced) {
  // Each expert is chosen once, and each has the same mean.
  const auto balanced = run(route({9, 0, 0, 0, 9, 0, 0, 0, 9}, 1, {.group = 3, .aux = 0.25}));
  EXPECT_NEAR(balanced[3].at(0), 0.25 * 3, 1e-15);
}

TEST_P(Routing, auxiliary_loss_counts_dropped_choices_and_adds_up_groups) {
  const double p = 1 / (1 + 2 * std::exp(-9));  // all tokens choose expert 0
  const std::vector<double> same = {9, 0, 0, 9, 0, 0, 9, 0, 0, 9, 0, 0};
  for (int64_t group : {1, 2, 4}) {
    const auto out = run(route(same, 1, {.group = group, .capacity = 1, .aux = 0.5}));
    EXPECT_NEAR(out[3].at(0), 0.5 * 4 * kExperts * p, 1e-14) << group;
  }
}

TEST_P(Routing, auxiliary_loss_is_of_the_samples_that_exist) {
  std::vector<double> logits;
  for (int i = 0; i < 4 * 6 * kExperts; ++i) logits.push_back(std::sin(i * i));
  const Settings settings{.k = 2, .group = 3, .capacity = 1};
  const auto whole = run(route(logits, 4, settings));
  Op op = route(logits, 4, settings);
  double aux = 0;
  for (int64_t b = 0; b < 4; ++b) {
    op.in[1].set(b, b == 1 || b == 3 ? -1 : 100 + static_cast<double>(b));
    const auto at = logits.begin() + b * 6 * kExperts;
    if (op.in[1].at(b) >= 0) aux += run(route({at, at + 6 * kExperts}, 1, settings))[3].at(0);
  }
  const auto some = run(op);
  EXPECT_NEAR(some[3].at(0), aux, 1e-12);
  EXPECT_LT(some[3].at(0), 0.8 * whole[3].at(0));
  for (size_t k = 0; k < 3; ++k) EXPECT_EQ(values(some[k]), values(whole[k]));  // its tokens are routed
}

TEST_P(Routing, of_a_group_does_not_depend_on_the_others) {
  std::vector<double> logits;
  for (int i = 0; i < 8 * 6 * kExperts; ++i) logits.push_back(std::round(3 * std::sin(i * i)));
  const Settings settings{.k = 2, .group = 3, .capacity = 1};
  const auto whole = run(route(logits, 8, settings));
  double aux = 0;
  for (int64_t part = 0; part < 16; ++part) {  // every group on its own
    const auto at = logits.begin() + part * 3 * kExperts;
    const auto alone = run(route({at, at + 3 * kExperts}, 1, settings));
    for (size_t k = 0; k < 3; ++k) {
      for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(alone[k].at(i), whole[k].at(part * 6 + i));
    }
    aux += alone[3].at(0);
  }
  EXPECT_NEAR(aux, whole[3].at(0), 1e-12);
}

TEST_P(Routing, refuses_attributes_that_do_not_fit) {
  const auto message = [this](const Op& op, tenon_code code = TENON_E_ARGUMENT) {
    const Result done = kernels.run(op);
    EXPECT_EQ(done.code, code);
    return done.message;
  };
  EXPECT_EQ(message(route(kLogits, 1, {.group = 3})),
            "route_topk: size s = 4 must be divisible by group = 3");
  EXPECT_EQ(message(route(kLogits, 1, {.k = 4})), "route_topk: size k = 4 must be at most e = 3");
  EXPECT_EQ(message(route(kLogits, 1, {.capacity = 0})),
            "route_topk: attribute 'capacity' = 0 must be at least 1");
  Op op = route(kLogits, 1, {.k = 2});
  op.attrs[0] = integer("k", 1);
  EXPECT_EQ(message(op), "route_topk: output 0 (gate): k = k must be 1, got 2");
  const Kernels reference("reference", 0);
  CaseMaker make(reference, TENON_F32, {2, 4, 3, 4, 5, 1, 2, 4}, 1);
  op = make.dispatch();
  op.attrs[1] = integer("experts", 9);
  EXPECT_EQ(message(op), "dispatch: output 0 (y): e = experts must be 9, got 5");
  op = make.combine();
  op.attrs[0] = integer("group", 4);
  EXPECT_EQ(message(op), "combine: input 0 (y): n = s/group must be 1, got 2");
  op = make.combine();
  op.in[2].set(3, 5);
  EXPECT_EQ(message(op), "combine: expert: token 3 has index 5, must be 0 to 4");
  op = make.dispatch();
  op.in[2].set(1, 99);
  EXPECT_EQ(message(op), "dispatch: slot: token 1 has index 99, must be below 1 (negative: padding)");
}

INSTANTIATE_TEST_SUITE_P(Plugins, Routing, testing::Values("reference", "cpu"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tenon::test
