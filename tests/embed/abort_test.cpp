// A call is ended from another thread.

#include <unistd.h>

#include <chrono>
#include <thread>

#include "processes.h"

namespace tenon::test {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A step of so many microbatches takes long, in short instructions.
Json slow(int ranks, int microbatches) {
  TinyModel model;
  model.layers = 4;
  model.width = 64;
  model.ffn = 256;
  model.groups = 4;
  model.head = 16;
  model.context = 128;
  Json recipe = tiny_recipe(gpt2_model(model), "corpus.txt", model.context);
  recipe["batch"] = 8 * microbatches;
  recipe["microbatches"] = microbatches;
  recipe["mesh"] = Json::array({Json::array({"dp", ranks})});
  return recipe;
}

// What a call returned that was ended `after` it had begun, and how long that took.
struct Ended {
  Outcome call;
  double seconds = 0;
};

template <class Call>
Ended ended(OpenRun& run, std::chrono::milliseconds after, const Call& call) {
  Clock::time_point asked;
  std::thread other([&] {
    std::this_thread::sleep_for(after);
    asked = Clock::now();
    EXPECT_EQ(run.abort().code, TENON_OK);
  });
  Ended out{call(), 0};
  const auto returned = Clock::now();
  other.join();
  out.seconds = std::chrono::duration<double>(returned - asked).count();
  return out;
}

void expect_aborted(const Outcome& call) {
  EXPECT_EQ(call.code, TENON_E_ABORTED);
  EXPECT_TRUE(has(call.text, "error[E031]: tenon_run_abort was called")) << call.text;
}

TEST(Abort, ends_a_step_long_before_its_end) {
  constexpr int kMicrobatches = 64;
  const Folder folder;
  const Context context;
  OpenRun one(context, slow(1, 1), folder.path());
  tenon_step_result result{};
  result.struct_size = sizeof result;
  ASSERT_EQ(one.step(&result).code, TENON_OK);
  for (const int ranks : {1, 2, 4}) {
    OpenRun run(context, slow(ranks, kMicrobatches), folder.path());
    ASSERT_EQ(run.opened().code, TENON_OK) << run.opened().text;
    const double whole = result.seconds * kMicrobatches / ranks;  // had each rank a core of its own
    const std::chrono::milliseconds after(static_cast<int64_t>(std::min(500.0, 1e3 * whole / 4)));
    const Ended end = ended(run, after, [&] { return run.step(); });
    expect_aborted(end.call);
    EXPECT_TRUE(has(end.call.text, "train program, instruction ")) << end.call.text;
    std::printf("%d ranks: ended within %.1f ms of a step of %.0f s\n", ranks, 1e3 * end.seconds, whole);
    EXPECT_LT(end.seconds, whole / 4);
    EXPECT_EQ(run.info().steps_done, 0);
    for (const Outcome& later : {run.step(), run.save(folder / "out")}) {
      EXPECT_EQ(later.code, TENON_E_STATE);
      EXPECT_TRUE(has(later.text, "after a failure of the run: tenon_run_abort was called")) << later.text;
    }
  }
}

TEST(Abort, of_a_run_is_undone_by_resuming_bit_for_bit) {
  for (const int ranks : {1, 2}) {
    const Folder folder;
    const Context context;
    Json recipe = tiny();
    recipe["steps"] = 1000000;
    recipe["mesh"] = Json::array({Json::array({"dp", ranks})});
    OpenRun straight(context, recipe, folder.path()), run(context, recipe, folder.path());
    const double lr = 0.02;
    for (const OpenRun* one : {&straight, &run}) {
      ASSERT_EQ(tenon_run_set_lr(one->get(), &lr, nullptr), TENON_OK);
    }
    const std::vector<double> expected = straight.losses(5);
    run.losses(2);
    ASSERT_EQ(run.save(folder / "out").code, TENON_OK);
    for (int again = 0; again < 3; ++again) {
      const Ended end = ended(run, std::chrono::milliseconds(50), [&] {
        Outcome step;
        while (step.code == TENON_OK) step = run.step();
        return step;
      });
      expect_aborted(end.call);
      const Outcome none = run.resume(folder / "nowhere");
      EXPECT_EQ(none.code, TENON_E_CHECKPOINT);
      const Outcome resumed = run.resume(folder / "out");
      ASSERT_EQ(resumed.code, TENON_OK) << resumed.text;
      EXPECT_EQ(run.info().steps_done, 2);
      expect_same_bits(run.losses(3), {expected.begin() + 2, expected.end()});
      EXPECT_TRUE(run.read_all() == straight.read_all());
    }
  }
}

// Nothing can be gone on from what an aborted step left, nor from what the ranks begin with anew.
TEST(Abort, leaves_nothing_to_step_on_before_a_checkpoint_is_loaded) {
  const Folder folder;
  const Context context;
  OpenRun run(context, slow(2, 64), folder.path());
  expect_aborted(ended(run, std::chrono::milliseconds(300), [&] { return run.step(); }).call);
  EXPECT_EQ(run.resume(folder / "nowhere").code, TENON_E_CHECKPOINT);
  for (const Outcome& refused : {run.step(), run.save(folder / "out")}) {
    EXPECT_EQ(refused.code, TENON_E_STATE);
    EXPECT_TRUE(has(refused.text, "error[E022]")) << refused.text;
  }
  EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(Abort, without_a_call_ends_the_next_one_and_the_run_is_as_good_as_before) {
  const Folder folder;
  const Context context;
  OpenRun straight(context, tiny(), folder.path()), run(context, tiny(), folder.path());
  const std::vector<double> expected = straight.losses(4);
  std::vector<double> losses = run.losses(1);
  const auto next = [&](const std::function<Outcome()>& call) {
    EXPECT_EQ(run.abort().code, TENON_OK);
    EXPECT_EQ(run.abort().code, TENON_OK);
    EXPECT_EQ(run.info().steps_done, static_cast<int64_t>(losses.size())) << "looking is no work";
    expect_aborted(call());
    losses.push_back(run.losses(1)[0]);
  };
  std::string bytes;
  next([&] { return run.step(); });
  next([&] { return run.read("wpe.weight", bytes); });
  next([&] { return run.save(folder / "out"); });
  EXPECT_FALSE(fs::exists(folder / "out"));
  expect_same_bits(losses, expected);
  ASSERT_EQ(run.save(folder / "out").code, TENON_OK);
  EXPECT_EQ(run.abort().code, TENON_OK);
  expect_aborted(run.resume(folder / "out"));
  EXPECT_TRUE(run.read_all() == straight.read_all());
  EXPECT_EQ(tenon_run_abort(nullptr, nullptr), TENON_E_ARGUMENT);
}

// Ever another moment: in the data, in instructions, in transfers, between calls.
TEST(Abort, at_any_moment_is_told_once_and_hangs_nobody) {
  const Folder folder;
  const Context context;
  Json recipe = tiny();
  recipe["steps"] = 1000000;
  recipe["mesh"] = Json::array({Json::array({"dp", 3})});
  recipe["batch"] = 12;
  recipe["numerics"]["shards"] = 12;
  OpenRun run(context, recipe, folder.path());
  ASSERT_EQ(run.opened().code, TENON_OK) << run.opened().text;
  ASSERT_EQ(run.save(folder / "out").code, TENON_OK);
  std::vector<double> seconds;
  for (int round = 0; round < 40; ++round) {
    Clock::time_point asked;
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(137 * round));
      asked = Clock::now();
      EXPECT_EQ(run.abort().code, TENON_OK);
    });
    Outcome end;
    while (end.code == TENON_OK) end = run.step();
    const auto returned = Clock::now();
    other.join();
    expect_aborted(end);
    seconds.push_back(std::chrono::duration<double>(returned - asked).count());
    if (run.step().code != TENON_OK) {
      ASSERT_EQ(run.resume(folder / "out").code, TENON_OK);
    }
    EXPECT_EQ(run.step().code, TENON_OK);
  }
  std::ranges::sort(seconds);
  std::printf("40 times: ended within %.1f ms, half of them within %.1f ms\n", 1e3 * seconds.back(),
              1e3 * seconds[20]);
}

// -- processes ----------------------------------------------------------------------------------------

// Rank `aborting` of two waits for the other in a step, which that has not begun, or in a save, and is
// aborted; then the other begins its step. The first is to get E031 at once, the other an error, and both can
// be closed. Returns what went wrong.
std::string abort_it(const Folder& folder, bool saves, const tenon_run_options& options) {
  const Context context;
  OpenRun run(context, tiny("fast", "comm/ucx"), folder.path(), options);
  if (run.opened().code != TENON_OK) return run.opened().text;
  if (run.step().code != TENON_OK) return "no first step";
  const Ended end = ended(run, std::chrono::milliseconds(300),
                          [&] { return saves ? run.save(folder / "out") : run.step(); });
  std::ofstream(folder / "aborted") << "";
  std::printf("rank %d: ended within %.1f ms\n", options.rank, 1e3 * end.seconds);
  if (end.call.code != TENON_E_ABORTED || !has(end.call.text, "error[E031]"))
    return "no E031: " + end.call.text;
  if (end.seconds > 20) return "it waited for the peer";
  const Outcome resumed = run.resume(folder / "out");
  return has(resumed.text, "close the run, open another") ? "" : "resuming: " + resumed.text;
}

std::string come_too_late(const Folder& folder, bool saves, const tenon_run_options& options) {
  const Context context;
  OpenRun run(context, tiny("fast", "comm/ucx"), folder.path(), options);
  if (run.opened().code != TENON_OK) return run.opened().text;
  if (run.step().code != TENON_OK) return "no first step";
  while (!fs::exists(folder / "aborted")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (saves) _exit(0);  // a save, or closing, would wait as for a process that has died
  const auto start = Clock::now();
  const Outcome step = run.step();
  if (step.code >= 0 || step.code == TENON_E_STATE) return "the peer's step: " + step.text;
  std::printf("the peer, after %.1f ms: %s\n", 1e3 * seconds_since(start), step.text.c_str());
  return seconds_since(start) < 100 ? "" : "the peer waited too long";
}

TEST(Abort, in_one_of_two_processes_ends_its_wait_and_its_peer_is_told) {
  if (!have_ucx()) GTEST_SKIP() << "no comm/ucx here: nothing was checked";
  for (const bool saves : {false, true}) {
    for (const int aborting : {0, 1}) {
      SCOPED_TRACE("rank " + std::to_string(aborting) + " aborts " + (saves ? "a save" : "a step"));
      const Folder folder;
      expect_of_two_processes(folder, [&](int rank, tenon_run_options options) {
        options.timeout_ns = 300'000'000'000;
        return rank == aborting ? abort_it(folder, saves, options) : come_too_late(folder, saves, options);
      });
    }
  }
}

}  // namespace
}  // namespace tenon::test
