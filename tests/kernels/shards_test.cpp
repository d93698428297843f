// Shards of a vocabulary, blocks of keys and chunks of a gradient: together they give what the whole op
// gives, however it is cut.
#include <gtest/gtest.h>

#include <cmath>

#include "cases.h"

namespace tenon::test {
namespace {

constexpr Size kSize{2, 6, 8, 5, 11, 2, 2, 4};
constexpr int64_t kCuts[] = {0, 4, 5, 11};  // of the vocabulary: uneven
constexpr double kTolerance = 1e-13;        // f64 sums in another order

class Shards : public testing::TestWithParam<const char*> {
 protected:
  std::vector<Tensor> run(const Op& op) const {
    Result done = kernels.run(op);
    EXPECT_EQ(done.code, TENON_OK) << op.kind << ": " << done.message;
    return std::move(done.out);
  }
  static void expect_close(const Tensor& got, const Tensor& want) {
    ASSERT_EQ(got.dims(), want.dims());
    for (int64_t i = 0; i < want.elements(); ++i) {
      ASSERT_TRUE(got.at(i) == want.at(i) || std::abs(got.at(i) - want.at(i)) <= kTolerance)
          << "[" << i << "]: " << got.at(i) << " instead of " << want.at(i);
    }
  }

  Kernels reference{"reference", 0};
  Kernels kernels{GetParam(), 2, std::string(GetParam()) == "cpu" ? "auto" : ""};
  CaseMaker make{reference, TENON_F64, kSize, 3};
};

TEST_P(Shards, of_an_embedding_sum_to_it) {
  const Op whole = make.embedding();
  const Tensor want = run(whole)[0];
  Tensor sum(TENON_F64, want.dims());
  for (size_t i = 0; i + 1 < std::size(kCuts); ++i) {
    const int64_t start = kCuts[i], rows = kCuts[i + 1] - start;
    const Tensor part = run({"embedding_shard",
                             {whole.in[0], slice(whole.in[1], 0, start, rows)},
                             {make.real(want.dims())},
                             {integer("start", start)}})[0];
    for (int64_t k = 0; k < sum.elements(); ++k) sum.set(k, sum.at(k) + part.at(k));
  }
  EXPECT_EQ(sum.bytes(), want.bytes());
}

TEST_P(Shards, of_an_embeddings_gradient_are_its_rows) {
  const Op whole = make.embedding();
  const Tensor dy = make.random(whole.out[0].dims());
  const Tensor want = run({"embedding_wgrad", {dy, whole.in[0]}, {make.real(whole.in[1].dims())}, {}})[0];
  for (size_t i = 0; i + 1 < std::size(kCuts); ++i) {
    const int64_t start = kCuts[i], rows = kCuts[i + 1] - start;
    const Tensor part = run({"embedding_shard_wgrad",
                             {dy, whole.in[0]},
                             {make.real({rows, kSize.h})},
                             {integer("start", start)}})[0];
    expect_close(part, slice(want, 0, start, rows));
  }
}

TEST_P(Shards, of_a_cross_entropy_join_to_it_and_have_its_gradient) {
  for (double padding : {0.0, 0.5}) {
    const Op whole = make.cross_entropy(padding);
    const std::vector<Tensor> want = run(whole);
    const Tensor gradient = run(
        {"cross_entropy_dgrad", {whole.in[0], whole.in[1], want[2]}, {make.real(whole.in[0].dims())}, {}})[0];
    const int64_t shards = std::size(kCuts) - 1, tokens = kSize.b * kSize.s;
    Tensor parts = make.real({shards, kSize.b, kSize.s}), picked = make.real({kSize.b, kSize.s});
    for (int64_t i = 0; i < shards; ++i) {
      const int64_t start = kCuts[i], rows = kCuts[i + 1] - start;
      const Op shard = make.cross_entropy_shard(whole, start, rows);
      const std::vector<Tensor> mine = run(shard);
      for (int64_t t = 0; t < tokens; ++t) {
        parts.set(i * tokens + t, mine[0].at(t));
        picked.set(t, picked.at(t) + mine[1].at(t));
      }
      const Tensor part = run({"cross_entropy_shard_dgrad",
                               {shard.in[0], shard.in[1], want[2]},
                               {make.real(shard.in[0].dims())},
                               shard.attrs})[0];
      expect_close(part, slice(gradient, 2, start, rows));
    }
    const std::vector<Tensor> joined =
        run({"cross_entropy_join", {parts, picked, whole.in[1]}, whole.out, {}});
    EXPECT_NEAR(joined[0].at(0), want[0].at(0), 1e-12 * std::abs(want[0].at(0)));
    EXPECT_EQ(joined[1].bytes(), want[1].bytes());
    expect_close(joined[2], want[2]);
  }
}

// Some queries see nothing of a block, and some (position -1) nothing at all.
TEST_P(Shards, of_keys_merge_in_any_order_to_attention_over_all) {
  using Positions = CaseMaker::Positions;
  for (Positions positions : {Positions::causal, Positions::shuffled, Positions::blind}) {
    const Op whole = make.attention(positions);
    const std::vector<Tensor> want = run(whole);
    for (const std::vector<int64_t>& order : {std::vector<int64_t>{0, 1, 2, 3}, {3, 1, 0, 2}}) {
      Op merge{"attention_merge", {}, {make.real(want[0].dims()), make.real(want[1].dims())}, {}};
      for (int64_t block : order) {
        const int64_t size = kSize.t / 4;
        Op part = whole;
        for (size_t i : {1u, 2u, 4u}) part.in[i] = slice(whole.in[i], 1, block * size, size);
        merge.in = run(part);
        merge.out = run(merge);
        merge.flags = TENON_KERNEL_ACCUMULATE;
      }
      expect_close(merge.out[0], want[0]);
      expect_close(merge.out[1], want[1]);
    }
  }
}

TEST_P(Shards, of_a_gradient_have_the_norms_of_their_chunks_bit_for_bit) {
  constexpr int64_t kChunk = 16, kElements = 16 * 5 + 3, kCut = 2 * kChunk;
  const auto chunks = [&](const Tensor& x) {
    const int64_t n = (x.elements() + kChunk - 1) / kChunk;
    return run({"sqnorm_chunks", {x}, {Tensor(TENON_F64, {n})}, {integer("chunk", kChunk)}})[0];
  };
  const Tensor x = make.random({kElements});
  const Tensor whole = chunks(x), first = chunks(slice(x, 0, 0, kCut)),
               rest = chunks(slice(x, 0, kCut, kElements - kCut));
  EXPECT_EQ(slice(whole, 0, 0, 2).bytes(), first.bytes());
  EXPECT_EQ(slice(whole, 0, 2, 4).bytes(), rest.bytes());
  const double all = run({"sum", {whole}, {Tensor(TENON_F64, {})}, {}})[0].at(0);
  EXPECT_NEAR(all, run({"sqnorm", {x}, {Tensor(TENON_F64, {})}, {}})[0].at(0), 1e-12 * all);
}

TEST_P(Shards, that_nobody_writes_are_zero) {
  const Tensor zeros = run({"zeros", {}, {make.real({3, 5})}, {}})[0];
  for (int64_t i = 0; i < zeros.elements(); ++i) EXPECT_EQ(zeros.at(i), 0);
}

INSTANTIATE_TEST_SUITE_P(Plugins, Shards, testing::Values("reference", "cpu"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tenon::test
