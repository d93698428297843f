// `--trace` of `tenon train` and `tenon resume`: every instruction of the traced steps of every rank, where
// and when it ran; and that looking changes nothing.
#include "workplace.hpp"

namespace tenon::test {
namespace {

struct Event {
  std::string lane, category;
  double start = 0, end = 0;  // microseconds
  json args;
};

struct Trace {
  std::map<int, std::vector<Event>> of_rank;  // in the file's order

  static Trace read(const std::string& text) {
    Trace out;
    std::map<std::pair<int, int>, std::string> lanes;
    const json document = json::parse(text);
    for (const json& e : document.at("traceEvents")) {
      if (e.at("name") == "thread_name") lanes[{e.at("pid"), e.at("tid")}] = e.at("args").at("name");
      if (e.at("ph") != "X") continue;
      const double start = e.at("ts");
      out.of_rank[e.at("pid")].push_back({lanes.at({e.at("pid"), e.at("tid")}), e.at("cat"), start,
                                          start + e.at("dur").get<double>(), e.at("args")});
    }
    return out;
  }
};

// Instructions by step and lane, as numbers in the order of their starts.
using Lists = std::map<std::pair<int, std::string>, std::vector<int>>;
Lists instructions(const std::vector<Event>& events) {
  Lists out;
  for (const Event& e : events) {
    if (e.args.contains("instruction")) out[{e.args.at("step"), e.lane}].push_back(e.args.at("instruction"));
  }
  return out;
}

void expect_lanes_in_order(const std::vector<Event>& events) {
  std::map<std::string, double> busy_until;
  constexpr double kRounding = 1e-3;
  for (const Event& e : events) {
    EXPECT_GE(e.end, e.start) << e.args;
    EXPECT_GE(e.start, busy_until[e.lane] - kRounding) << e.lane << " " << e.args;
    busy_until[e.lane] = e.end;
  }
}

void expect_every_instruction_once(const std::vector<Event>& events, int count, const std::set<int>& steps) {
  std::map<int, std::multiset<int>> seen;  // by step
  for (const auto& [key, list] : instructions(events)) {
    EXPECT_TRUE(std::is_sorted(list.begin(), list.end())) << key.second;
    seen[key.first].insert(list.begin(), list.end());
  }
  std::multiset<int> all;
  for (int i = 0; i < count; ++i) all.insert(i);
  std::set<int> traced;
  for (const auto& [step, instrs] : seen) {
    EXPECT_EQ(instrs, all) << "step " << step;
    traced.insert(step);
  }
  EXPECT_EQ(traced, steps);
}

void expect_details(const std::vector<Event>& events) {
  std::set<std::string> ops, categories;
  for (const Event& e : events) {
    categories.insert(e.category);
    if (!e.args.contains("instruction")) continue;
    ops.insert(e.args.at("op"));
    EXPECT_GE(e.args.at("bytes"), 4) << e.args;
    EXPECT_NE(e.args.at("tensor"), "") << e.args;
  }
  for (const char* op : {"linear", "attention_dgrad", "update"}) EXPECT_TRUE(ops.contains(op)) << op;
  EXPECT_TRUE(categories.contains("update"));
}

// Traces `steps` of a run and compares it with one that nobody looked at.
void expect_sound(int ranks, const std::string& comm, const std::vector<std::string>& range,
                  const std::set<int>& steps) {
  SCOPED_TRACE(comm + " on " + std::to_string(ranks));
  const Workplace place;
  const std::vector<std::string> parameters{"comm=" + comm, "save=6"};
  std::vector<std::string> traced = parameters;
  traced.insert(traced.end(), {"--trace", "out.json"});
  traced.insert(traced.end(), range.begin(), range.end());
  const CommandRecord with = train(place, "with", ranks, traced),
                      without = train(place, "without", ranks, parameters);
  EXPECT_EQ(with.steps, without.steps);
  expect_same(with.saved, without.saved, "traced");
  const auto told = events(parse_lines(with.result.out), "trace");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].at("step"), *steps.rbegin()) << "written as soon as it is complete";
  const json plan =
      json::parse(place.run({"plan", "tiny.lua", "-n", std::to_string(ranks), "--json", "comm=" + comm}).out);
  const Trace trace = Trace::read(place.read("out.json"));
  ASSERT_EQ(trace.of_rank.size(), static_cast<size_t>(ranks));
  std::set<std::vector<double>> starts;
  for (const auto& [rank, list] : trace.of_rank) {
    std::vector<double> own;
    for (const Event& e : list) own.push_back(e.start);
    EXPECT_TRUE(starts.insert(own).second) << "another rank's times";
    SCOPED_TRACE("rank " + std::to_string(rank));
    expect_every_instruction_once(list, plan.at("instructions"), steps);
    expect_lanes_in_order(list);
    expect_details(list);
  }
}

TEST(Trace, of_one_rank_has_the_second_step_and_the_third) { expect_sound(1, "comm/local", {}, {2, 3}); }
TEST(Trace, of_ranks_that_are_threads) {
  expect_sound(4, "comm/local", {"--trace-steps", "1:4"}, {1, 2, 3, 4});
}
TEST(Trace, of_ranks_that_are_processes) { expect_sound(2, "comm/ucx", {"--trace-steps", "6:6"}, {6}); }

TEST(Trace, transfers_have_lanes_of_their_own_and_are_waited_for_on_the_compute_lane) {
  const Workplace place;
  train(place, "run", 2, {"save=6", "--trace", "out.json"});
  const auto events = Trace::read(place.read("out.json")).of_rank.at(1);
  std::map<std::string, std::set<std::string>> lanes;  // of category
  for (const Event& e : events) lanes[e.category].insert(e.lane);
  EXPECT_EQ(lanes.at("all_reduce"), std::set<std::string>{"dp"});
  EXPECT_EQ(lanes.at("start"), std::set<std::string>{"compute"});
  EXPECT_EQ(lanes.at("wait"), std::set<std::string>{"compute"});
  EXPECT_EQ(lanes.at("step"), std::set<std::string>{"step"});
}

TEST(Trace, of_a_run_of_one_step_is_that_step) {
  const Workplace place;
  train(place, "run", 1, {"steps=1", "save=1", "--trace", "out.json"});
  EXPECT_EQ(instructions(Trace::read(place.read("out.json")).of_rank.at(0)).begin()->first.first, 1);
}

// Stops `run` behind step 2 of 6 and goes on traced; what was traced are the steps `first` and `last`.
void expect_resume_traced(const std::string& comm, const std::vector<std::string>& range,
                          const std::set<int>& steps) {
  SCOPED_TRACE(comm);
  const Workplace place;
  const CommandRecord whole = train(place, "run", 2, {"save=2", "keep=20", "comm=" + comm});
  for (const char* lost : {"run/checkpoints/step-4", "run/checkpoints/step-6"})
    ASSERT_GT(std::filesystem::remove_all(place.at(lost)), 0u);
  std::vector<std::string> arguments{"resume", "run", "--json", "--trace", "out.json"};
  arguments.insert(arguments.end(), range.begin(), range.end());
  const CommandRecord resumed = record_of(place, "run", arguments);
  EXPECT_EQ(resumed.steps, std::vector<Step>(whole.steps.begin() + 2, whole.steps.end()));
  expect_same(resumed.saved, whole.saved, "traced");
  const json plan = json::parse(place.run({"plan", "tiny.lua", "-n", "2", "--json", "comm=" + comm}).out);
  const Trace trace = Trace::read(place.read("out.json"));
  ASSERT_EQ(trace.of_rank.size(), 2u);
  for (const auto& [rank, list] : trace.of_rank) {
    expect_every_instruction_once(list, plan.at("instructions"), steps);
    expect_lanes_in_order(list);
  }
}

TEST(Trace, of_a_resumed_run_of_threads_has_the_second_step_and_the_third_of_those_done_now) {
  expect_resume_traced("comm/local", {}, {4, 5});
}
TEST(Trace, of_a_resumed_run_of_processes) {
  expect_resume_traced("comm/ucx", {"--trace-steps", "3:6"}, {3, 4, 5, 6});
}

TEST(Trace, of_steps_that_are_done_is_refused) {
  const Workplace place;
  train(place, "run", 1, {"save=2", "keep=20"});
  const auto refused = place.run({"resume", "run", "--trace", "out.json"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(
      refused.err,
      "error[R005]: no steps to trace: all 6 are done\n  --> --trace\n  fix: trace a run that goes on\n");
  std::filesystem::remove_all(place.at("run/checkpoints/step-6"));
  const auto behind = place.run({"resume", "run", "--trace", "out.json", "--trace-steps", "4:5"});
  EXPECT_EQ(behind.code, 2);
  EXPECT_EQ(
      behind.err,
      "error[R005]: no steps to trace: '4:5'\n  --> --trace-steps\n  fix: first:last, of the steps 5 to "
      "6, at most 100\n");
  EXPECT_FALSE(std::filesystem::exists(place.at("out.json")));
}

TEST(Trace, mistakes_are_told_before_a_run_is_made) {
  const Workplace place;
  const auto expect_refused = [&](std::vector<std::string> arguments, const std::string& message) {
    arguments.insert(arguments.begin(), {"train", "tiny.lua", "--run-dir", "run"});
    const auto result = place.run(arguments);
    EXPECT_NE(result.code, 0);
    EXPECT_EQ(result.err, message);
    EXPECT_FALSE(std::filesystem::exists(place.at("run")));
  };
  for (const char* steps : {"3", "0:2", "4:3", "6:7", "2:", "2:3x", "a:b"}) {
    expect_refused({"--trace", "out.json", "--trace-steps", steps},
                   "error[R005]: no steps to trace: '" + std::string(steps) +
                       "'\n  --> --trace-steps\n  fix: first:last, of the steps 1 to 6, at most 100\n");
  }
  expect_refused({"--trace", "out.json", "--trace-steps", "1:101", "steps=200"},
                 "error[R005]: no steps to trace: '1:101'\n  --> --trace-steps\n  fix: first:last, of the "
                 "steps 1 to 200, at most 100\n");
  expect_refused({"--trace-steps", "1:2"},
                 "error[R004]: steps to trace, and no file\n  --> --trace-steps\n  fix: --trace out.json\n");
  expect_refused({"--trace", "nowhere/out.json"},
                 "error[R024]: cannot write the file\n  --> nowhere/out.json\n  fix: choose a folder that "
                 "exists and can be written\n");
}

}  // namespace
}  // namespace tenon::test
