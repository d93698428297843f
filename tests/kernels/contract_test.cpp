// What both kernel plugins promise beyond numbers: the kinds of tenon_sdk/ops.hpp, refusals with clear
// messages, and memory.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "cases.h"
#include "tenon_sdk/kernel_problem.hpp"

// Under AddressSanitizer, too much memory must be refused as malloc() does instead of ending the test.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}

namespace tenon::test {
namespace {

class Contract : public testing::TestWithParam<const char*> {
 protected:
  Kernels reference{"reference", 0};
  Kernels kernels{GetParam(), 2, std::string(GetParam()) == "cpu" ? "auto" : ""};
  CaseMaker make{reference, TENON_F32, {2, 3, 3, 4, 5, 1, 2, 4}, 1};

  void expect_refused(const Op& op, tenon_code code, const std::string& message) {
    const Result done = kernels.run(op);
    EXPECT_EQ(done.code, code);
    EXPECT_EQ(done.message, message);
  }
};

TEST_P(Contract, runs_the_kinds_that_have_a_signature_and_no_others) {
  std::set<std::string> run, accepted;
  for (const Case& c : make.all()) {
    EXPECT_EQ(kernels.run(c.op).code, TENON_OK) << c.name;
    run.insert(c.op.kind);
  }
  for (const kernels::Signature& s : kernels::signatures()) accepted.insert(s.kind);
  EXPECT_GE(accepted.size(), 28u);
  EXPECT_EQ(run, accepted);
}

TEST_P(Contract, promises_bits_that_depend_on_shapes_alone) {
  for (const Case& c : make.all()) {
    tenon_kernel_info info{};
    std::string message;
    ASSERT_EQ(kernels.describe(c.op, info, message), TENON_OK) << message;
    EXPECT_EQ(info.flags & TENON_KERNEL_EXACT, TENON_KERNEL_EXACT) << c.name;
    EXPECT_EQ(info.struct_size, sizeof info);
  }
}

TEST_P(Contract, refuses_what_it_does_not_know) {
  Op op = make.gelu();
  op.kind = "conv";
  expect_refused(op, TENON_E_UNSUPPORTED, "no kernel for op kind 'conv'");
  op = make.gelu();
  op.flags = TENON_KERNEL_ACCUMULATE;
  expect_refused(op, TENON_E_UNSUPPORTED, "gelu: cannot accumulate into its outputs");
  op.flags = 64;
  expect_refused(op, TENON_E_UNSUPPORTED, "gelu: unknown flags 64");
  op.flags = 0;
  op.inplace = 0;
  expect_refused(op, TENON_E_UNSUPPORTED, "gelu: cannot run in place of input 0");
  op.inplace = -1;
  op.in[0] = Tensor(TENON_U8, op.in[0].dims());
  expect_refused(op, TENON_E_UNSUPPORTED, "gelu: input 0 (x): dtype must be f32 or f64, got u8[2 3 1 4]");
}

TEST_P(Contract, refuses_operands_that_do_not_fit) {
  Op op = make.linear();
  op.in.pop_back();
  expect_refused(op, TENON_E_ARGUMENT, "linear: takes 2 inputs, got 1");
  op = make.linear();
  op.in[1] = Tensor(TENON_F32, {7, 3});
  expect_refused(op, TENON_E_ARGUMENT, "linear: input 1 (w): must be [o.. k..=[4]], got f32[7 3]");
  op = make.linear();
  op.in[1] = Tensor(TENON_F64, op.in[1].dims());
  expect_refused(op, TENON_E_ARGUMENT,
                 "linear: input 1 (w): must be f32 as the operands before it, got f64[1 2 4 4]");
  op = make.layernorm();
  op.out[1] = Tensor(TENON_F32, {2});
  expect_refused(op, TENON_E_ARGUMENT, "layernorm: output 1 (mean): must be [b=[2] s=[3]], got f32[2]");
  op = make.embedding();
  op.in[0] = Tensor(TENON_I64, {2, 3});
  expect_refused(op, TENON_E_ARGUMENT, "embedding: input 0 (ids): must be i32, got i64[2 3]");
}

TEST_P(Contract, refuses_attributes_that_make_no_sense) {
  Op op = make.layernorm();
  op.attrs.clear();
  expect_refused(op, TENON_E_ARGUMENT, "layernorm: attribute 'eps' is missing");
  op = make.dropout(1.0);
  expect_refused(op, TENON_E_ARGUMENT, "dropout: attribute 'p' = 1 must be below 1");
  op = make.rope(false);
  op.attrs[1] = number("inverse", 0.5);
  expect_refused(op, TENON_E_ARGUMENT, "rope: attribute 'inverse' must be int");
  op = make.rope(false);
  op.in[0] = Tensor(TENON_F32, {2, 3, 5});
  op.out[0] = op.in[0];
  expect_refused(op, TENON_E_ARGUMENT, "rope: size d = 5 must be divisible by 2");
  op = {"slice", {Tensor(TENON_F32, {4})}, {Tensor(TENON_F32, {2})}, {}};
  op.attrs = {integer("dim", 0), integer("start", 3), integer("size", 2)};
  expect_refused(op, TENON_E_ARGUMENT, "slice: part 3 to 5 lies outside of dim 0 of f32[4]");
  op.attrs[0] = integer("dim", 1);
  expect_refused(op, TENON_E_ARGUMENT, "slice: attribute 'dim' = 1 is no dim of f32[4]");
  op = {"concat", {Tensor(TENON_F32, {2, 3}), Tensor(TENON_F32, {2, 4})}, {Tensor(TENON_F32, {4, 3})}, {}};
  op.attrs = {integer("dim", 0)};
  expect_refused(op, TENON_E_ARGUMENT,
                 "concat: input 1 (x): f32[2 4] differs from input 0, f32[2 3], outside of dim 0");
}

TEST_P(Contract, refuses_indices_outside_of_the_vocabulary) {
  Op op = make.embedding();
  op.in[0].set(2, 5);
  expect_refused(op, TENON_E_ARGUMENT, "embedding: ids: token 2 has index 5, must be 0 to 4");
  Op back = make.backward(make.embedding(), make.random({2, 3, 4})).front();
  back.in[1].set(4, -1);
  expect_refused(back, TENON_E_ARGUMENT, "embedding_wgrad: ids: token 4 has index -1, must be 0 to 4");
  op = make.cross_entropy(0);
  op.in[1].set(1, 5);
  expect_refused(op, TENON_E_ARGUMENT,
                 "cross_entropy: targets: token 1 has index 5, must be below 5 (negative: padding)");
}

TEST_P(Contract, refuses_sizes_that_overflow) {
  const int64_t huge = int64_t{1} << 62;
  const int64_t dims[] = {huge, huge};
  const tenon_shape shape{TENON_F32, 2, dims};
  tenon_kernel_desc desc{};
  desc.struct_size = sizeof desc;
  desc.kind = "sqnorm";
  desc.inputs = &shape;
  desc.num_inputs = 1;
  desc.inplace = -1;
  tenon_kernel_info info{};
  info.struct_size = sizeof info;
  tenon_error error{};
  error.struct_size = sizeof error;
  const tenon_kernels_config config = kernels.config();
  EXPECT_EQ(kernels.table().describe(&config, &desc, &info, &error), TENON_E_ARGUMENT);
  EXPECT_STREQ(
      error.message,
      "sqnorm: input 0 (x): f32[4611686018427387904 4611686018427387904] does not fit into 2^63 bytes");
}

TEST_P(Contract, gives_memory_that_is_aligned_and_zero) {
  for (uint64_t bytes : {0ull, 1ull, 64ull, 1000ull, (5ull << 20) + 3}) {
    void* block = nullptr;
    tenon_error error{};
    error.struct_size = sizeof error;
    ASSERT_EQ(kernels.table().alloc(kernels.device(), bytes, &block, &error), TENON_OK);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
    const std::vector<uint8_t> zeros(bytes, 0);
    if (bytes > 0) {
      EXPECT_EQ(std::memcmp(block, zeros.data(), bytes), 0);
    }
    kernels.table().free(kernels.device(), block);
  }
}

TEST_P(Contract, says_so_when_there_is_no_memory) {
  void* block = nullptr;
  tenon_error error{};
  error.struct_size = sizeof error;
  EXPECT_EQ(kernels.table().alloc(kernels.device(), uint64_t{1} << 62, &block, &error), TENON_E_MEMORY);
  EXPECT_STREQ(error.message, "cannot allocate 4611686018427387904 bytes of host memory");
}

TEST_P(Contract, copies_bytes) {
  const std::vector<uint8_t> from = {1, 2, 3, 4, 5};
  std::vector<uint8_t> to(5);
  EXPECT_EQ(kernels.table().copy(kernels.device(), to.data(), from.data(), 5, nullptr, nullptr), TENON_OK);
  EXPECT_EQ(to, from);
}

TEST_P(Contract, opens_no_device_but_0) {
  tenon_device* device = nullptr;
  tenon_error error{};
  error.struct_size = sizeof error;
  tenon_kernels_config config = kernels.config();
  config.device_id = 1;
  EXPECT_EQ(kernels.table().open(&config, &device, &error), TENON_E_ARGUMENT);
  EXPECT_EQ(std::string(error.message),
            "kernels/" + std::string(GetParam()) + ": CPU device 1 does not exist, only 0");
}

INSTANTIATE_TEST_SUITE_P(Plugins, Contract, testing::Values("reference", "cpu"),
                         [](const auto& info) { return std::string(info.param); });

// Known answer of Philox4x32-10 (Random123's kat_vectors): counter 0, key 0 gives 6627e8d5 e169c58d bc57ac4c
// 9b00dbd8, so with p between two words the mask is known.
TEST_P(Contract, draws_dropout_from_philox) {
  Tensor x(TENON_F64, {1, 1, 4}), sample(TENON_I64, {1}), pos(TENON_I32, {1, 1}), step(TENON_I64, {});
  for (int64_t i = 0; i < 4; ++i) x.set(i, 1);
  const uint32_t words[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (uint32_t word : words) {
    for (int above : {0, 1}) {
      const double p = (static_cast<double>(word) + above) * 0x1p-32;  // u >= p keeps
      const Op op{"dropout", {x, sample, pos, step}, {x}, {number("p", p), integer("key", 0)}};
      const Result done = kernels.run(op);
      ASSERT_EQ(done.code, TENON_OK) << done.message;
      for (int64_t i = 0; i < 4; ++i) {
        EXPECT_DOUBLE_EQ(done.out[0].at(i), words[i] * 0x1p-32 >= p ? 1 / (1 - p) : 0) << i;
      }
    }
  }
}

}  // namespace
}  // namespace tenon::test
