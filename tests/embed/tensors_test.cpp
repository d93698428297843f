// Tensors read and written whole, whatever the mesh.

#include <array>
#include <nlohmann/json.hpp>

#include "combination.hpp"
#include "processes.h"

namespace tenon::test {
namespace {

const std::vector<Combination> kMeshes{
    {"dp2", "gpt2", {{"dp", 2}}, "data"},
    {"zero1", "gpt2", {{"dp", 2}}, "data zero1"},
    {"zero2", "gpt2", {{"dp", 4}}, "data zero2", "", 2},
    {"zero3", "gpt2", {{"dp", 4}}, "data zero3"},
    {"hierarchical_zero3", "gpt2", {{"dp_out", 2}, {"dp_in", 2}}, "data zero3:dp/dp_in", "", 2},
    {"tp2", "llama", {{"tp", 2}}, "tensor"},
    {"cp2", "gpt2", {{"cp", 2}}, "ring"},
    {"experts", "moe", {{"dp", 2}}, "data expert"},
    {"pp2_tied", "gpt2", {{"pp", 2}}, "pipeline", "1f1b", 2},
    {"pp2_in_a_v", "gpt2", {{"pp", 2}}, "pipeline2", "dualpipe-v", 4, 4},
    {"tp2_pp2_zero3", "gpt2", {{"pp", 2}, {"dp", 2}, {"tp", 2}}, "pipeline data sequence zero3", "1f1b", 4},
};

class Whole : public testing::TestWithParam<Combination> {
 protected:
  Json recipe(bool alone) const {
    Json out = recipe_of(GetParam(), "corpus.txt", alone);
    out["kernels"]["plugin"] = "kernels/cpu";
    return out;
  }
  const Folder folder_;
  const Context context_;
};

void expect_same(const std::map<std::string, std::string>& one,
                 const std::map<std::string, std::string>& other) {
  ASSERT_EQ(one.size(), other.size());
  for (const auto& [name, bytes] : one) EXPECT_TRUE(bytes == other.at(name)) << name;
}

TEST_P(Whole, names_shapes_and_first_values_are_those_of_one_rank) {
  OpenRun one(context_, recipe(true), folder_.path()), many(context_, recipe(false), folder_.path());
  ASSERT_EQ(many.opened().code, TENON_OK) << many.opened().text;
  EXPECT_EQ(many.info().world, world_of(GetParam()));
  EXPECT_EQ(many.info().num_parameters, one.info().num_parameters);
  EXPECT_EQ(many.info().num_param_tensors, one.info().num_param_tensors);
  EXPECT_EQ(many.names(), one.names());
  uint64_t parameters = 0;
  for (const std::string& name : one.names()) {
    const tenon_tensor_info a = one.tensor(name), b = many.tensor(name);
    EXPECT_EQ(a.bytes, b.bytes) << name;
    EXPECT_EQ(a.is_state, b.is_state) << name;
    EXPECT_EQ(a.dtype.bits, b.dtype.bits) << name;
    EXPECT_EQ(std::vector(a.dims, a.dims + a.ndim), std::vector(b.dims, b.dims + b.ndim)) << name;
    parameters += a.is_state ? 0 : 1;
  }
  EXPECT_EQ(parameters, one.info().num_param_tensors);
  expect_same(many.read_all(), one.read_all());
}

TEST_P(Whole, behind_steps_they_are_what_a_checkpoint_holds) {
  OpenRun many(context_, recipe(false), folder_.path()), one(context_, recipe(true), folder_.path());
  ASSERT_EQ(many.opened().code, TENON_OK) << many.opened().text;
  const auto first = many.read_all();
  many.losses(2);
  const auto behind = many.read_all();
  EXPECT_TRUE(behind != first);
  ASSERT_EQ(many.save(folder_ / "out").code, TENON_OK);
  ASSERT_EQ(one.resume(folder_ / "out").code, TENON_OK);
  expect_same(behind, one.read_all());
  expect_same(behind, one.tensors());
}

TEST_P(Whole, another_runs_written_in_make_its_next_steps_those_of_the_other_bit_for_bit) {
  OpenRun other(context_, recipe(true), folder_.path());
  ASSERT_EQ(tenon_run_set_lr(other.get(), std::array{0.003}.data(), nullptr), TENON_OK);
  other.losses(2);
  ASSERT_EQ(other.save(folder_ / "out").code, TENON_OK);
  OpenRun expected(context_, recipe(false), folder_.path());
  ASSERT_EQ(expected.resume(folder_ / "out").code, TENON_OK);
  OpenRun run(context_, recipe(false), folder_.path());
  ASSERT_EQ(run.opened().code, TENON_OK) << run.opened().text;
  run.losses(2);
  const auto all = other.read_all();
  EXPECT_TRUE(run.read_all() != all);
  run.write_all(all);
  expect_same(run.read_all(), all);
  expect_same_bits(run.losses(2), expected.losses(2));
  expect_same(run.read_all(), expected.read_all());
}

INSTANTIATE_TEST_SUITE_P(meshes, Whole, testing::ValuesIn(kMeshes),
                         [](const auto& info) { return info.param.name; });

TEST(Tensors, of_a_run_without_training_are_the_parameters) {
  const Folder folder;
  const Context context;
  tenon_run_options options = run_options();
  options.flags = TENON_RUN_NO_TRAINING;
  OpenRun run(context, tiny(), folder.path(), options);
  EXPECT_EQ(run.info().num_tensors, run.info().num_param_tensors);
  EXPECT_EQ(run.read_all().size(), run.info().num_tensors);
}

// As a checkpoint that is larger than what travels at once.
TEST(Tensors, larger_than_a_piece_are_read_and_written) {
  const Folder folder;
  const Context context;
  TinyModel model;
  model.vocab = 4099;
  Json recipe = tiny();
  recipe["model"] = gpt2_model(model);
  recipe["mesh"] = Json::array({Json::array({"dp", 2})});
  OpenRun run(context, recipe, folder.path());
  ASSERT_EQ(run.opened().code, TENON_OK) << run.opened().text;
  ASSERT_EQ(run.tensor("wte.weight").bytes, 4099u * 16 * 4);
  std::string bytes;
  ASSERT_EQ(run.read("wte.weight", bytes).code, TENON_OK);
  EXPECT_EQ(bytes, run.tensors().at("wte.weight"));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 % 61);
  ASSERT_EQ(run.write("wte.weight", bytes).code, TENON_OK);
  EXPECT_EQ(run.tensors().at("wte.weight"), bytes);
}

TEST(Tensors, what_does_not_fit_is_refused_and_nothing_changes) {
  const Folder folder;
  const Context context;
  OpenRun run(context, tiny(), folder.path());
  const auto before = run.read_all();
  const std::string name = "h.1.attn.q.weight";
  const auto refused = [&](const std::string& part, const auto& change) {
    HostTensor host(run.tensor(name));
    DLTensor tensor = host.get();
    change(tensor);
    for (const auto& call : {tenon_run_read, tenon_run_write}) {
      const Outcome said =
          outcome_of([&](tenon_error* e) { return call(run.get(), name.c_str(), &tensor, e); });
      EXPECT_EQ(said.code, TENON_E_ARGUMENT);
      EXPECT_TRUE(has(said.text, "error[A010]: the memory for '" + name + "' " + part)) << said.text;
    }
    EXPECT_EQ(host.bytes.find_first_not_of('\x5a'), std::string::npos);
  };
  refused("is of device type 2", [](DLTensor& t) { t.device.device_type = kDLCUDA; });
  refused("is of float64\n  fix: the tensor's dtype is float32", [](DLTensor& t) { t.dtype.bits = 64; });
  refused("is of bfloat32", [](DLTensor& t) { t.dtype.code = kDLBfloat; });
  refused("is of float32x2", [](DLTensor& t) { t.dtype.lanes = 2; });
  refused("is [2 1 8]\n  fix: the tensor is [2 1 8 16]", [](DLTensor& t) { t.ndim = 3; });
  std::array<int64_t, 4> shape{2, 1, 16, 8}, strides{128, 128, 8, 1}, fine{128, 7, 16, 1};
  refused("is [2 1 16 8]", [&](DLTensor& t) { t.shape = shape.data(); });
  refused("is not dense", [&](DLTensor& t) { t.strides = strides.data(); });
  refused("is NULL", [](DLTensor& t) { t.data = nullptr; });
  refused("has 4 dims and no shape", [](DLTensor& t) { t.shape = nullptr; });
  expect_same(run.read_all(), before);

  HostTensor host(run.tensor(name));
  host.bytes.insert(0, "12345678");
  DLTensor tensor = host.get();
  tensor.strides = fine.data();  // that of the dim of one element says nothing
  tensor.byte_offset = 8;
  EXPECT_EQ(tenon_run_read(run.get(), name.c_str(), &tensor, nullptr), TENON_OK);
  EXPECT_EQ(host.bytes, "12345678" + before.at(name));

  tenon_tensor_info info{};
  info.struct_size = sizeof info;
  for (const auto& said : {
           outcome_of([&](tenon_error* e) { return tenon_run_tensor(run.get(), "wte.wieght", &info, e); }),
           outcome_of([&](tenon_error* e) { return tenon_run_read(run.get(), "wte.wieght", &tensor, e); }),
           outcome_of([&](tenon_error* e) { return tenon_run_write(run.get(), "wte.wieght", &tensor, e); }),
       }) {
    EXPECT_EQ(said.code, TENON_E_ARGUMENT);
    EXPECT_TRUE(has(said.text, "error[E025]: no tensor is named 'wte.wieght'")) << said.text;
  }
}

TEST(Tensors, are_read_but_not_written_while_a_view_is_exported) {
  const Folder folder;
  const Context context;
  OpenRun run(context, tiny(), folder.path());
  DLManagedTensorVersioned* const view = run.view("wpe.weight");
  std::string bytes;
  EXPECT_EQ(run.read("wpe.weight", bytes).code, TENON_OK);
  const Outcome refused = run.write("wpe.weight", bytes);
  EXPECT_EQ(refused.code, TENON_E_STATE);
  EXPECT_TRUE(has(refused.text, "error[E020]: writing a tensor while 'wpe.weight' is exported"))
      << refused.text;
  view->deleter(view);
  // A view of one run is what another is given.
  OpenRun other(context, tiny(), folder.path());
  run.losses(1);
  DLManagedTensorVersioned* const trained = run.view("wpe.weight");
  const Outcome written = outcome_of(
      [&](tenon_error* e) { return tenon_run_write(other.get(), "wpe.weight", &trained->dl_tensor, e); });
  EXPECT_EQ(written.code, TENON_OK) << written.text;
  trained->deleter(trained);
  EXPECT_EQ(other.tensors().at("wpe.weight"), run.tensors().at("wpe.weight"));
}

// -- processes ----------------------------------------------------------------------------------------

Json sharded() {
  Json recipe = tiny("exact", "comm/ucx");
  recipe["mesh"] = Json::array({Json::array({"dp", 2})});
  recipe["strategies"].push_back({{"plugin", "parallel/zero"}, {"options", {{"stage", 3}}}});
  return recipe;
}

// What one of two processes does; the number of the line that went wrong, or 0.
int read_and_write(int rank, const std::string& root, const tenon_run_options& options) {
  const Context context;
  OpenRun run(context, sharded(), root, options);
  if (run.opened().code != TENON_OK) return __LINE__;
  OpenRun one(context, tiny("exact"), root);
  if (run.names() != one.names() || run.read_all() != one.read_all()) return __LINE__;
  one.losses(2);
  run.losses(1);
  if (run.read_all() == one.read_all()) return __LINE__;
  run.losses(1);
  const auto all = one.read_all();
  if (run.read_all() != all) return __LINE__;  // exact: as on one rank

  // Different values, names and calls are told to both, and nothing has changed.
  std::string bytes(run.tensor("wpe.weight").bytes, static_cast<char>('a' + rank));
  const Outcome differ = run.write("wpe.weight", bytes);
  if (differ.code != TENON_E_STATE || !has(differ.text, "error[E030]")) return __LINE__;
  if (run.read(rank == 0 ? "wpe.weight" : "wte.weight", bytes).code != TENON_E_STATE) return __LINE__;
  const std::array<double, 2> rates{0.01, 0.02};
  const Outcome lr = outcome_of(
      [&](tenon_error* e) { return tenon_run_set_lr(run.get(), rank == 0 ? rates.data() : &rates[1], e); });
  if (lr.code != TENON_E_STATE || !has(lr.text, "error[E030]")) return __LINE__;
  if (run.read_all() != all) return __LINE__;

  OpenRun other(context, tiny("exact"), root);
  if (tenon_run_set_lr(other.get(), std::array{0.5}.data(), nullptr) != TENON_OK) return __LINE__;
  other.losses(2);
  if (other.read_all() == all) return __LINE__;
  run.write_all(other.read_all());
  for (const OpenRun* each : {&run, &other}) {
    if (tenon_run_set_lr(each->get(), &rates[1], nullptr) != TENON_OK) return __LINE__;
  }
  const auto mine = run.losses(2), its = other.losses(2);
  if (!same_bits(mine[0], its[0]) || !same_bits(mine[1], its[1])) return __LINE__;
  if (run.read_all() != other.read_all()) return __LINE__;
  return 0;
}

TEST(Tensors, of_two_processes_are_read_by_both_and_written_by_both) {
  if (!have_ucx()) GTEST_SKIP() << "no comm/ucx here: nothing was checked";
  const Folder folder;
  expect_of_two_processes(folder, [&](int rank, const tenon_run_options& options) {
    const int line = read_and_write(rank, folder.path(), options);
    return line == 0 ? "" : "tensors_test.cpp:" + std::to_string(line);
  });
}

}  // namespace
}  // namespace tenon::test
