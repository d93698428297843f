// A plugin that misbehaves below a run: what the host sees of it, and what it does not.
#include <signal.h>

#include <thread>

#include "support.h"

namespace tenon::test {
namespace {

struct Lines {
  const std::thread::id thread = std::this_thread::get_id();
  int reads = 0;
  bool elsewhere = false;
};

// A context that finds data/faulty, and counts what it logs.
class FaultyContext {
 public:
  FaultyContext() : context_(&options_) {}
  const Context& get() const { return context_; }
  const Lines& lines() const { return lines_; }

 private:
  static void on_log(void* user, uint32_t, const char* source, uint32_t, const char* message) {
    Lines& lines = *static_cast<Lines*>(user);
    lines.elsewhere |= std::this_thread::get_id() != lines.thread;
    lines.reads += std::string(source) == "faulty" && std::string(message) == "a read" ? 1 : 0;
  }

  Lines lines_;
  const char* folder_ = TENON_FIXTURES;
  tenon_options options_{sizeof options_, TENON_LOG_INFO, on_log, &lines_, &folder_, 1, 0, nullptr, nullptr};
  Context context_;
};

Json faulty(int fail_at) {
  Json recipe = tiny();
  recipe["data"] = {{"plugin", "data/faulty"}, {"options", {{"fail_at", fail_at}}}, {"valid", 0.0}};
  recipe["steps"] = 8;  // 64 samples in batches of 8: each once
  return recipe;
}

tenon_run_options ranks(int n) {
  tenon_run_options options = run_options();
  options.virtual_ranks = n;
  options.timeout_ns = 60'000'000'000;
  return options;
}

TEST(Failure, what_ranks_log_arrives_on_the_calling_thread_before_the_call_ends) {
  const FaultyContext context;
  OpenRun run(context.get(), faulty(-1), ".", ranks(2));
  ASSERT_EQ(run.opened().code, TENON_OK) << run.opened().text;
  for (int step = 1; step <= 3; ++step) {
    ASSERT_EQ(run.step().code, TENON_OK);
    EXPECT_EQ(context.lines().reads, 2 * step);
  }
  EXPECT_FALSE(context.lines().elsewhere);
}

TEST(Failure, a_handler_that_a_plugin_installs_while_a_run_opens_is_gone_behind_it) {
  struct sigaction before {};
  sigaction(SIGSEGV, nullptr, &before);
  const FaultyContext context;
  OpenRun run(context.get(), faulty(-1), ".", ranks(2));
  ASSERT_EQ(run.opened().code, TENON_OK) << run.opened().text;
  struct sigaction after {};
  sigaction(SIGSEGV, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

// A rank that waits for one that never comes would wait for an hour.
TEST(Failure, when_one_rank_cannot_open_the_others_stop_waiting_and_its_cause_is_the_error) {
  const FaultyContext context;
  Json recipe = faulty(-1);
  recipe["data"]["options"]["opens"] = 1;
  tenon_run_options options = ranks(2);
  options.timeout_ns = 3'600'000'000'000;
  OpenRun run(context.get(), recipe, ".", options);
  EXPECT_EQ(run.opened().code, TENON_E_MEMORY);
  EXPECT_TRUE(has(run.opened().text, "too many datasets")) << run.opened().text;
  EXPECT_EQ(run.get(), nullptr);
}

// The other rank waits for gradients that never come; it must be told, and its words must not be the error.
TEST(Failure, when_one_rank_fails_the_others_stop_waiting_and_its_cause_is_the_error) {
  for (const int n : {1, 2, 4}) {
    const FaultyContext context;
    OpenRun run(context.get(), faulty(17), ".", ranks(n));
    ASSERT_EQ(run.opened().code, TENON_OK) << run.opened().text;
    Outcome end;
    int steps = -1;
    for (; end.code == TENON_OK; ++steps) end = run.step();
    EXPECT_EQ(end.code, TENON_E_IO) << end.text;
    EXPECT_TRUE(has(end.text, "the disk is on fire")) << end.text;
    EXPECT_LT(steps, 8);
    for (const Outcome& later : {run.step(), run.save("/nonexistent/out"), run.resume("/nonexistent/out")}) {
      EXPECT_EQ(later.code, TENON_E_STATE);
      EXPECT_TRUE(has(later.text, "after a failure of the run: the disk is on fire")) << later.text;
    }
    EXPECT_EQ(run.info().steps_done, steps);  // it can still be looked at
    EXPECT_FALSE(run.tensors().empty());
  }
}

}  // namespace
}  // namespace tenon::test
