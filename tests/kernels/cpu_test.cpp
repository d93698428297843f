// kernels/cpu against kernels/reference, and the independence of its bits of threads and addresses, for
// every op kind and every instruction set that this machine has.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <stdexcept>

#include "cases.h"

namespace tenon::test {
namespace {

// Relative to the largest value of the output, for sums cancel. Both kernels read the same f32 operands; one
// result has a rounding error of about eps * sqrt(n) relative to its terms, with eps = 6e-8 (f32), 1.1e-16
// (f64) and n at most some thousand, and backward ops chain three or four such sums.
double tolerance(uint32_t dtype) { return dtype == TENON_F32 ? 1e-5 : 1e-13; }

void expect_close(const Tensor& got, const Tensor& want, double tolerance, const std::string& place) {
  // A result that is zero in theory (layernorm's gradient of rows of one) keeps the rounding of its terms,
  // which are near 1.
  double largest = 0.05;
  for (int64_t i = 0; i < want.elements(); ++i) {
    if (std::isfinite(want.at(i))) largest = std::fmax(largest, std::fabs(want.at(i)));
  }
  for (int64_t i = 0; i < want.elements(); ++i) {
    const double x = got.at(i), y = want.at(i);
    const bool same = x == y || std::fabs(x - y) <= tolerance * largest;
    ASSERT_TRUE(same) << place << " [" << i << "]: " << x << " instead of " << y << ", largest " << largest;
  }
}

struct Setting {
  std::string isa;
  uint32_t dtype;
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const std::string& isa : available_isas()) {
    all.push_back({isa, TENON_F32});
    all.push_back({isa, TENON_F64});
  }
  return all;
}

std::string name_of(const testing::TestParamInfo<Setting>& info) {
  return info.param.isa + (info.param.dtype == TENON_F32 ? "_f32" : "_f64");
}

// A case and what kernels/reference makes of it.
struct Judged {
  std::string place;
  Op op;
  std::vector<Tensor> want;
};
enum class Shapes { odd, large };

// Made once for all instruction sets.
const std::vector<Judged>& judged(uint32_t dtype, Shapes shapes) {
  static std::map<std::pair<uint32_t, Shapes>, std::vector<Judged>> cache;
  std::vector<Judged>& all = cache[{dtype, shapes}];
  if (!all.empty()) return all;
  const Kernels reference("reference", 0);
  for (const Size& size : shapes == Shapes::odd ? small_sizes() : large_sizes()) {
    for (Case& c : CaseMaker(reference, dtype, size, 5).all()) {
      Result done = reference.run(c.op);
      EXPECT_EQ(done.code, TENON_OK) << c.name << ": " << done.message;
      all.push_back({c.name + ", " + text(size), std::move(c.op), std::move(done.out)});
    }
  }
  return all;
}

class Cpu : public testing::TestWithParam<Setting> {
 protected:
  void compare(Shapes shapes) {
    const Kernels cpu("cpu", 2, GetParam().isa);
    for (const Judged& c : judged(GetParam().dtype, shapes)) {
      const Result got = cpu.run(c.op);
      ASSERT_EQ(got.code, TENON_OK) << c.place << ": " << got.message;
      for (size_t i = 0; i < c.want.size(); ++i) {
        ASSERT_NO_FATAL_FAILURE(expect_close(got.out[i], c.want[i], tolerance(GetParam().dtype),
                                             c.place + ", output " + std::to_string(i)));
      }
    }
  }
};

TEST_P(Cpu, agrees_with_the_reference_on_odd_shapes) { compare(Shapes::odd); }
TEST_P(Cpu, agrees_with_the_reference_on_large_shapes) { compare(Shapes::large); }

TEST_P(Cpu, gives_the_same_bits_on_any_number_of_threads_and_at_any_address) {
  const Kernels none("cpu", 0, GetParam().isa), two("cpu", 2, GetParam().isa),
      three("cpu", 3, GetParam().isa);
  for (const Judged& c : judged(GetParam().dtype, Shapes::large)) {
    const Result want = none.run(c.op);
    ASSERT_EQ(want.code, TENON_OK) << c.place << ": " << want.message;
    const Result others[] = {two.run(c.op), three.run(c.op, 40), none.run(c.op, 8), two.run(c.op, 24)};
    for (size_t k = 0; k < std::size(others); ++k) {
      for (size_t i = 0; i < want.out.size(); ++i) {
        ASSERT_EQ(others[k].out[i].bytes(), want.out[i].bytes())
            << c.place << ", output " << i << ", run " << k;
      }
    }
  }
}

// In exact mode the op may run in place or not, depending on the memory plan.
TEST_P(Cpu, gives_the_same_bits_in_place) {
  const Kernels cpu("cpu", 2, GetParam().isa);
  for (const Judged& c : judged(GetParam().dtype, Shapes::large)) {
    if (c.op.inplace < 0) continue;
    Op apart = c.op;
    apart.inplace = -1;
    ASSERT_EQ(cpu.run(c.op).out[0].bytes(), cpu.run(apart).out[0].bytes()) << c.place;
  }
}

// Sizes at which products are cut in every way: wide results share the rows, others the columns; sums of more
// than 512 are cut into blocks, and of very long ones only a slab is packed at a time.
TEST_P(Cpu, multiplies_matrices_however_they_are_cut) {
  const Kernels reference("reference", 0), none("cpu", 0, GetParam().isa), three("cpu", 3, GetParam().isa);
  struct Sizes {
    int64_t rows, outs, ins;
  };
  for (const Sizes& n :
       {Sizes{70, 2305, 40}, {33, 50, 1100}, {513, 31, 9}, {20, 1100, 4500}, {2310, 17, 70}}) {
    CaseMaker make(reference, GetParam().dtype, {1, n.rows, 1, 1, 1, 1, 1, 2}, 11);
    const Tensor x = make.random({1, n.rows, n.ins}), w = make.random({n.outs, n.ins}),
                 y = make.random({1, n.rows, n.outs});
    for (const Op& op : {Op{"linear", {x, w}, {y}, {}}, Op{"linear_dgrad", {y, w}, {x}, {}},
                         Op{"linear_wgrad", {y, x}, {w}, {}, TENON_KERNEL_ACCUMULATE}}) {
      const std::string place = op.kind + " of " + std::to_string(n.rows) + " rows, " +
                                std::to_string(n.outs) + " outs, " + std::to_string(n.ins) + " ins";
      const Result want = reference.run(op), got = three.run(op, 24);
      ASSERT_EQ(got.code, TENON_OK) << place << ": " << got.message;
      ASSERT_NO_FATAL_FAILURE(expect_close(got.out[0], want.out[0], tolerance(GetParam().dtype), place));
      ASSERT_EQ(none.run(op).out[0].bytes(), got.out[0].bytes()) << place;
    }
  }
}

// More elements than one part, and than one partial sum.
TEST_P(Cpu, adds_up_long_arrays) {
  const Kernels reference("reference", 0), none("cpu", 0, GetParam().isa), three("cpu", 3, GetParam().isa);
  CaseMaker make(reference, GetParam().dtype, {1, 1, 1, 1, 1, 1, 1, 2}, 12);
  const Tensor x = make.random({3, 70001});
  for (const Op& op : {Op{"sqnorm", {x}, {Tensor(TENON_F64, {})}, {}}, Op{"add", {x, x}, {x}, {}}}) {
    const Result want = reference.run(op), got = three.run(op, 24);
    ASSERT_EQ(got.code, TENON_OK) << got.message;
    ASSERT_NO_FATAL_FAILURE(expect_close(got.out[0], want.out[0], tolerance(GetParam().dtype), op.kind));
    ASSERT_EQ(none.run(op).out[0].bytes(), got.out[0].bytes()) << op.kind;
  }
}

// Relative to each result: a cap hardly changes what is far below it.
TEST_P(Cpu, caps_small_and_large_numbers_alike_well) {
  const Kernels cpu("cpu", 0, GetParam().isa);
  const double eps = GetParam().dtype == TENON_F32 ? 6e-8 : 1.2e-16, cap = 30;
  std::vector<double> given{0};
  for (double x = 1e-12; x < 1e4; x *= 1.37) given.insert(given.end(), {x, -x});
  const auto n = static_cast<int64_t>(given.size());
  Tensor x(GetParam().dtype, {1, n, 1});
  for (int64_t i = 0; i < n; ++i) x.set(i, given[static_cast<size_t>(i)]);
  const Result got = cpu.run(Op{"softcap", {x}, {x}, {number("cap", cap)}});
  ASSERT_EQ(got.code, TENON_OK) << got.message;
  for (int64_t i = 0; i < n; ++i) {
    const double want = cap * std::tanh(x.at(i) / cap);
    EXPECT_LE(std::fabs(got.out[0].at(i) - want), 6 * eps * std::fabs(want)) << x.at(i);
  }
}

INSTANTIATE_TEST_SUITE_P(EachInstructionSet, Cpu, testing::ValuesIn(settings()), name_of);

TEST(CpuInstructionSets, baseline_is_always_there) {
  const std::vector<std::string> all = available_isas();
  EXPECT_EQ(all.back(), "baseline");
}

TEST(CpuInstructionSets, that_the_machine_lacks_are_an_error) {
  try {
    const Kernels cpu("cpu", 1, "avx9");
    FAIL() << "opened";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(),
                 "kernels/cpu: option isa = avx9: this machine lacks these instructions; use 'auto'");
  }
}

TEST(CpuInstructionSets, have_their_own_bits_so_the_option_has_an_effect) {
  if (available_isas().size() < 2) GTEST_SKIP() << "only baseline on this machine";
  const Kernels reference("reference", 0), best("cpu", 1, "auto"), baseline("cpu", 1, "baseline");
  CaseMaker make(reference, TENON_F32, {2, 64, 64, 192, 7, 2, 1, 32}, 8);
  const Op op = make.layernorm();
  EXPECT_NE(best.run(op).out[0].bytes(), baseline.run(op).out[0].bytes());
}

// Rows must not see each other: the same samples in a larger batch keep their bits where the op is local to
// a row and not cut by the batch.
TEST(CpuAttention, of_one_sample_does_not_depend_on_the_others) {
  const Kernels reference("reference", 0), cpu("cpu", 2, "auto");
  CaseMaker make(reference, TENON_F32, {2, 100, 100, 1, 1, 2, 2, 32}, 9);
  const Op both = make.attention(CaseMaker::Positions::causal);
  Op first = both;
  for (std::vector<Tensor>* group : {&first.in, &first.out}) {
    for (Tensor& t : *group) {
      std::vector<int64_t> dims = t.dims();
      dims[0] = 1;
      Tensor half(t.dtype(), dims);
      half.bytes().assign(t.bytes().begin(),
                          t.bytes().begin() + static_cast<std::ptrdiff_t>(half.bytes().size()));
      t = half;
    }
  }
  const Result whole = cpu.run(both), part = cpu.run(first);
  for (size_t i = 0; i < 2; ++i) {
    const std::vector<uint8_t>& bytes = part.out[i].bytes();
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), whole.out[i].bytes().begin()));
  }
}

TEST(CpuValues, that_are_not_numbers_are_not_hidden) {
  const Kernels reference("reference", 0), cpu("cpu", 2, "auto");
  CaseMaker make(reference, TENON_F32, {1, 3, 3, 40, 40, 1, 1, 32}, 10);
  for (Op op : {make.gelu(), make.swiglu(),
                Op{"softcap", {make.random({2, 9, 5})}, {make.random({2, 9, 5})}, {number("cap", 3.0)}},
                make.layernorm(), make.rmsnorm(), make.linear(), make.cross_entropy(0),
                make.attention(CaseMaker::Positions::causal)}) {
    op.in[0].set(5, std::nan(""));
    const Result done = cpu.run(op);
    bool found = false;
    for (int64_t i = 0; i < done.out[0].elements(); ++i) found = found || std::isnan(done.out[0].at(i));
    EXPECT_TRUE(found) << op.kind;
  }
}

}  // namespace
}  // namespace tenon::test
