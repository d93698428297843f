// Several ranks: as threads of this process, and as processes that the host started.

#include <atomic>

#include "processes.h"

namespace tenon::test {
namespace {

tenon_run_options virtual_ranks(int ranks) {
  tenon_run_options options = run_options();
  options.virtual_ranks = ranks;
  return options;
}

TEST(Ranks, two_virtual_ranks_in_exact_mode_are_one_bit_for_bit) {
  const Folder folder;
  const Context context;
  OpenRun one(context, tiny("exact"), folder.path(), virtual_ranks(1));
  OpenRun two(context, tiny("exact", "comm/ucx"), folder.path(), virtual_ranks(2));
  ASSERT_EQ(two.opened().code, TENON_OK) << two.opened().text;
  EXPECT_EQ(two.info().world, 2);
  expect_same_bits(one.losses(4), two.losses(4));
  EXPECT_EQ(one.tensors(), two.tensors());
}

TEST(Ranks, the_recipes_mesh_gives_the_number_where_none_is_asked_for) {
  const Folder folder;
  const Context context;
  Json recipe = tiny();
  recipe["mesh"] = Json::array({Json::array({"dp", 2})});
  OpenRun run(context, recipe, folder.path());
  EXPECT_EQ(run.info().world, 2);
}

TEST(Ranks, a_number_that_does_not_fit_the_mesh_is_an_error) {
  const Folder folder;
  const Context context;
  Json recipe = tiny();
  recipe["mesh"] = Json::array({Json::array({"dp", 2})});
  OpenRun run(context, recipe, folder.path(), virtual_ranks(4));
  EXPECT_TRUE(has(run.opened().text, "error[P001]")) << run.opened().text;
}

int threads_now() {
  return static_cast<int>(std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator()));
}

TEST(Ranks, more_than_the_mesh_allows_are_refused_before_threads_start) {
  const Folder folder;
  const Context context;
  const int before = threads_now();                                     // a sanitizer has one
  OpenRun run(context, tiny(), folder.path(), virtual_ranks(1000000));  // dp takes what is there
  EXPECT_TRUE(has(run.opened().text, "error[P010]")) << run.opened().text;
  EXPECT_EQ(threads_now(), before);
}

TEST(Ranks, a_checkpoint_of_two_ranks_goes_on_with_one_and_back) {
  const Folder folder;
  const Context context;
  OpenRun straight(context, tiny("exact"), folder.path());
  const std::vector<double> expected = straight.losses(6);
  std::vector<double> losses;
  for (const int ranks : {2, 1, 2}) {
    OpenRun run(context, tiny("exact"), folder.path(), virtual_ranks(ranks));
    if (!losses.empty()) {
      ASSERT_EQ(run.resume(folder / "out").code, TENON_OK);
    }
    for (double loss : run.losses(2)) losses.push_back(loss);
    const Outcome saved = run.save(folder / "out");
    ASSERT_EQ(saved.code, TENON_OK) << saved.text;
  }
  expect_same_bits(losses, expected);
}

TEST(Ranks, resuming_twice_loads_what_is_newest_each_time) {
  const Folder folder;
  const Context context;
  OpenRun run(context, tiny("exact"), folder.path(), virtual_ranks(2));
  for (int step = 1; step <= 2; ++step) {
    run.losses(1);
    ASSERT_EQ(run.save(folder / "out").code, TENON_OK);
    const Outcome resumed = run.resume(folder / "out");
    ASSERT_EQ(resumed.code, TENON_OK) << resumed.text;
    EXPECT_EQ(run.info().steps_done, step);
  }
}

TEST(Ranks, logits_and_evaluation_work_on_two_ranks_as_on_one) {
  const Folder folder;
  const Context context;
  std::vector<std::vector<double>> logits;
  std::vector<double> evals;
  for (const int ranks : {1, 2}) {
    OpenRun run(context, tiny("exact"), folder.path(), virtual_ranks(ranks));
    run.losses(2);
    const std::vector<int32_t> tokens{65, 66, 67};
    uint64_t count = 256;
    logits.emplace_back(count);
    tenon_error error = no_error();
    ASSERT_EQ(tenon_run_logits(run.get(), tokens.data(), 3, logits.back().data(), &count, &error), TENON_OK)
        << error.message;
    tenon_eval_result eval{};
    eval.struct_size = sizeof eval;
    ASSERT_EQ(tenon_run_eval(run.get(), &eval, &error), TENON_OK) << error.message;
    evals.push_back(eval.loss);
    EXPECT_EQ(run.step().code, TENON_OK);
  }
  expect_same_bits(logits[0], logits[1]);
  EXPECT_TRUE(same_bits(evals[0], evals[1]));
}

TEST(Ranks, two_processes_are_one_bit_for_bit) {
  if (!have_ucx()) GTEST_SKIP() << "no comm/ucx here: nothing was checked";
  const Folder folder;
  expect_of_two_processes(folder, [&](int rank, const tenon_run_options& options) {
    const Context context;
    OpenRun run(context, tiny("exact", "comm/ucx"), folder.path(), options);
    if (run.opened().code != TENON_OK) return run.opened().text;
    const std::vector<double> losses = run.losses(4);
    std::ofstream(folder / ("losses" + std::to_string(rank)))
        .write(reinterpret_cast<const char*>(losses.data()), 32);
    return run.save(folder / "out").text;
  });
  const Context context;
  OpenRun one(context, tiny("exact"), folder.path());
  const std::vector<double> expected = one.losses(4);
  for (const char* file : {"losses0", "losses1"}) {
    std::vector<double> losses(4);
    std::ifstream(folder / file).read(reinterpret_cast<char*>(losses.data()), 32);
    expect_same_bits(losses, expected);
  }
  EXPECT_EQ(one.resume(folder / "out").code, TENON_OK);
}

}  // namespace
}  // namespace tenon::test
