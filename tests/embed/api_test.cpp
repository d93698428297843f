// The life of a run under a loop of the host's, and what the library does to the process meanwhile: nothing.
#include <fenv.h>
#include <signal.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <thread>

#include "support.h"

namespace tenon::test {
namespace {

// Losses of `tenon train --json` on the same recipe.
std::vector<double> losses_of_command(const Folder& folder, const Json& recipe) {
  std::ofstream(folder / "recipe.json") << recipe.dump();
  const std::string command = std::string(TENON_COMMAND) + " train --json --threads 1 --run-dir " +
                              (folder / "run") + " " + (folder / "recipe.json");
  FILE* const pipe = popen(command.c_str(), "r");
  std::string text;
  std::array<char, 4096> buffer;
  for (size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) text.append(buffer.data(), n);
  EXPECT_EQ(pclose(pipe), 0) << text;
  std::vector<double> losses;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const Json event = Json::parse(line, nullptr, false);
    if (event.is_object() && event.value("event", "") == "step")
      losses.push_back(event.at("loss").get<double>());
  }
  return losses;
}

TEST(Embed, losses_are_those_of_the_command_bit_for_bit) {
  const Folder folder;
  const Context context;
  OpenRun run(context, tiny(), folder.path());
  ASSERT_EQ(run.opened().code, TENON_OK) << run.opened().text;
  const std::vector<double> mine = run.losses(6);
  EXPECT_LT(mine.back(), mine.front());
  expect_same_bits(mine, losses_of_command(folder, tiny()));
}

TEST(Embed, the_step_behind_the_last_one_is_DONE_and_leaves_the_result_alone) {
  const Folder folder;
  const Context context;
  OpenRun run(context, tiny(), folder.path());
  run.losses(6);
  tenon_step_result result{};
  result.struct_size = sizeof result;
  result.step = -7;
  EXPECT_EQ(run.step(&result).code, TENON_DONE);
  EXPECT_EQ(run.step(&result).code, TENON_DONE);
  EXPECT_EQ(result.step, -7);
  EXPECT_EQ(run.info().steps_done, 6);
}

TEST(Embed, info_tells_what_was_opened) {
  const Folder folder;
  const Context context;
  OpenRun run(context, tiny(), folder.path());
  const tenon_info info = run.info();
  EXPECT_EQ(info.struct_size, sizeof info);
  EXPECT_EQ(info.world, 1);
  EXPECT_EQ(info.rank, 0);
  EXPECT_EQ(info.training, 1u);
  EXPECT_EQ(info.total_steps, 6);
  EXPECT_EQ(info.batch, 8);
  EXPECT_EQ(info.context, 12);
  EXPECT_EQ(info.num_tensors, 3 * info.num_param_tensors);  // adamw keeps two moments of each
  int64_t elements = 0, bytes = 0;
  for (const auto& [name, content] : run.tensors()) {
    bytes += static_cast<int64_t>(content.size());
    if (!has(name, "/")) elements += static_cast<int64_t>(content.size()) / 4;
  }
  EXPECT_EQ(info.num_parameters, elements);
  EXPECT_GT(info.planned_bytes, static_cast<uint64_t>(bytes));
  EXPECT_EQ(tenon_run_tensor_name(run.get(), info.num_tensors), nullptr);
  EXPECT_STREQ(tenon_run_tensor_name(run.get(), 0), "wte.weight");
}

TEST(Embed, a_lua_recipe_takes_overrides_and_its_own_folder_as_data_root) {
  const Folder folder;
  const std::string path = folder / "mlp.lua";
  std::ifstream shipped(std::string(TENON_RECIPES) + "/mlp.lua");
  std::string text(std::istreambuf_iterator<char>(shipped), {});
  const std::string parameter = "file = p.file";
  ASSERT_NE(text.find(parameter), std::string::npos);
  text.replace(text.find(parameter), parameter.size(), "file = \"corpus.txt\"");
  std::ofstream(path) << text;
  const Context context;
  const std::array<const char*, 2> overrides{"file=unused", "steps=2"};
  tenon_run* run = nullptr;
  const Outcome opened = outcome_of([&](tenon_error* e) {
    return tenon_run_open(context.get(), path.c_str(), overrides.data(), 2, nullptr, &run, e);
  });
  ASSERT_EQ(opened.code, TENON_OK) << opened.text;
  tenon_error error = no_error();
  EXPECT_EQ(tenon_run_step(run, nullptr, &error), TENON_OK) << error.message;
  EXPECT_EQ(tenon_run_step(run, nullptr, &error), TENON_OK) << error.message;
  EXPECT_EQ(tenon_run_step(run, nullptr, &error), TENON_DONE);
  tenon_eval_result eval{};
  eval.struct_size = sizeof eval;
  EXPECT_EQ(tenon_run_eval(run, &eval, &error), TENON_OK) << error.message;
  EXPECT_GT(eval.tokens, 0);
  EXPECT_NEAR(eval.loss, std::log(256.0), 1.5);
  EXPECT_EQ(tenon_run_close(run, &error), TENON_OK) << error.message;
}

std::array<std::pair<void*, int>, 65> signal_handlers() {
  constexpr int kRestorer = 0x04000000;  // libc's own, in whatever was set once
  std::array<std::pair<void*, int>, 65> out{};
  for (int number = 1; number <= 64; ++number) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0) continue;
    out[static_cast<size_t>(number)] = {reinterpret_cast<void*>(action.sa_sigaction),
                                        action.sa_flags & ~kRestorer};
  }
  return out;
}

void whole_life(const Folder& folder, const Context& context, int ranks) {
  tenon_run_options options = run_options();
  options.virtual_ranks = ranks;
  OpenRun run(context, tiny("exact", "comm/ucx"), folder.path(), options);
  ASSERT_EQ(run.opened().code, TENON_OK) << run.opened().text;
  run.losses(2);
  const std::string out = folder / ("out" + std::to_string(ranks));
  EXPECT_EQ(run.save(out).code, TENON_OK);
  const Outcome resumed = run.resume(out);
  EXPECT_EQ(resumed.code, TENON_OK) << resumed.text;
  EXPECT_EQ(run.step().code, TENON_OK);
}

TEST(Embed, signal_handlers_floating_point_and_outputs_stay_the_hosts) {
  const Folder folder;
  struct sigaction mine {};
  mine.sa_handler = [](int) {};
  mine.sa_flags = SA_RESTART;
  struct sigaction before_test {};
  sigaction(SIGTERM, &mine, &before_test);
  const auto before = signal_handlers();
  fesetround(FE_TOWARDZERO);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    const Context context;
    for (int ranks : {1, 2}) whole_life(folder, context, ranks);
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(fegetround(), FE_TOWARDZERO);
  fesetround(FE_TONEAREST);
  EXPECT_EQ(signal_handlers(), before);
  sigaction(SIGTERM, &before_test, nullptr);
}

TEST(Embed, the_callers_rounding_mode_does_not_reach_the_numbers) {
  const Folder folder;
  const Context context;
  OpenRun plain(context, tiny(), folder.path());
  const std::vector<double> expected = plain.losses(3);
  fesetround(FE_UPWARD);
  OpenRun upward(context, tiny(), folder.path());
  const std::vector<double> losses = upward.losses(3);
  fesetround(FE_TONEAREST);
  expect_same_bits(losses, expected);
}

TEST(Embed, calls_may_come_from_one_thread_after_another) {
  const Folder folder;
  const Context context;
  OpenRun run(context, tiny(), folder.path());
  OpenRun other(context, tiny(), folder.path());
  std::vector<double> losses;
  for (int i = 0; i < 4; ++i) {
    std::thread([&] { losses.push_back(run.losses(1)[0]); }).join();
  }
  expect_same_bits(losses, other.losses(4));
}

TEST(Embed, two_contexts_train_at_the_same_time) {
  const Folder folder;
  std::array<std::vector<double>, 2> losses;
  std::vector<std::thread> threads;
  for (auto& mine : losses) {
    threads.emplace_back([&mine, &folder] {
      const Context context;
      OpenRun run(context, tiny(), folder.path());
      mine = run.losses(4);
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect_same_bits(losses[0], losses[1]);
}

struct LogLines {
  std::thread::id thread = std::this_thread::get_id();
  std::vector<std::string> lines;
  bool elsewhere = false;
};

TEST(Embed, the_log_is_called_on_the_calling_thread_alone) {
  const Folder folder;
  LogLines seen;
  tenon_options options{};
  options.struct_size = sizeof options;
  options.log_level = TENON_LOG_INFO;
  options.log_user = &seen;
  options.log = [](void* user, uint32_t level, const char* source, uint32_t, const char* message) {
    auto& lines = *static_cast<LogLines*>(user);
    lines.elsewhere |= std::this_thread::get_id() != lines.thread;
    lines.lines.push_back(std::to_string(level) + " " + source + " " + message);
  };
  const Context context(&options);
  OpenRun run(context, tiny("fast", "comm/ucx"), folder.path());
  ASSERT_EQ(run.opened().code, TENON_OK) << run.opened().text;
  EXPECT_FALSE(seen.elsewhere);
  EXPECT_EQ(seen.lines,
            std::vector<std::string>{
                "2 tiny ranks in one process communicate through comm/local, not through comm/ucx"});
}

TEST(Embed, logits_are_asked_for_filled_and_refused_when_they_do_not_fit) {
  const Folder folder;
  const Context context;
  OpenRun run(context, tiny(), folder.path());
  const std::vector<int32_t> tokens{65, 66, 67};
  const auto ask = [&](double* out, uint64_t* count) {
    return outcome_of([&](tenon_error* e) {
      return tenon_run_logits(run.get(), tokens.data(), tokens.size(), out, count, e);
    });
  };
  uint64_t count = 0;
  ASSERT_EQ(ask(nullptr, &count).code, TENON_OK);
  ASSERT_EQ(count, 256u);
  std::vector<double> logits(count, NAN);
  ASSERT_EQ(ask(logits.data(), &count).code, TENON_OK);
  for (const double logit : logits) ASSERT_TRUE(std::isfinite(logit));
  count = 255;
  const Outcome small = ask(logits.data(), &count);
  EXPECT_EQ(small.code, TENON_E_ARGUMENT);
  EXPECT_TRUE(has(small.text, "256 logits, but room for 255")) << small.text;
  EXPECT_EQ(count, 255u);
  EXPECT_EQ(run.step().code, TENON_OK);  // the run goes on
}

TEST(Embed, without_training_there_are_parameters_evaluation_and_no_steps) {
  const Folder folder;
  const Context context;
  OpenRun trained(context, tiny(), folder.path());
  trained.losses(3);
  ASSERT_EQ(trained.save(folder / "out").code, TENON_OK);
  tenon_run_options options = run_options();
  options.flags = TENON_RUN_NO_TRAINING;
  OpenRun run(context, tiny(), folder.path(), options);
  ASSERT_EQ(run.opened().code, TENON_OK) << run.opened().text;
  ASSERT_EQ(run.resume(folder / "out").code, TENON_OK);
  EXPECT_EQ(run.info().num_tensors, run.info().num_param_tensors);
  EXPECT_EQ(run.info().training, 0u);
  std::array<tenon_eval_result, 2> evals{};
  for (size_t i = 0; i < 2; ++i) {
    evals[i].struct_size = sizeof(tenon_eval_result);
    tenon_error error = no_error();
    ASSERT_EQ(tenon_run_eval((i == 0 ? trained : run).get(), &evals[i], &error), TENON_OK) << error.message;
  }
  EXPECT_TRUE(same_bits(evals[0].loss, evals[1].loss));
  const Outcome stepped = run.step();
  EXPECT_EQ(stepped.code, TENON_E_STATE);
  EXPECT_TRUE(has(stepped.text, "opened without training")) << stepped.text;
}

}  // namespace
}  // namespace tenon::test
