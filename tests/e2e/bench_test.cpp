// `tenon bench` on a small model: every field is there and fits the others. Never how fast anything is.
#include "workplace.hpp"

namespace tenon::test {
namespace {

// Reports of a command that must succeed, one a line.
std::vector<json> reports(const Workplace& place, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "bench");
  arguments.insert(arguments.end(), {"--json", "--rounds", "2"});
  const CommandResult result = place.run(arguments);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return parse_lines(result.out);
}

json report(const Workplace& place, const std::vector<std::string>& arguments) {
  const auto all = reports(place, arguments);
  EXPECT_EQ(all.size(), 1u);
  if (all.empty()) return {};
  const json& latency = all[0].at("core_latency_ns");
  EXPECT_EQ(latency.size(), 2u) << "before and after";
  const bool several = std::thread::hardware_concurrency() > 1;
  for (const json& ns : latency) EXPECT_EQ(ns.get<double>() > 0, several);
  return all[0];
}

std::set<std::string> keys(const json& object) {
  std::set<std::string> out;
  for (const auto& [key, value] : object.items()) out.insert(key);
  return out;
}

// That the row has these keys, "op" or "plugin" and "name" as text and all else as numbers from 0 on.
void expect_row(const json& row, const std::set<std::string>& expected) {
  EXPECT_EQ(keys(row), expected);
  for (const auto& [key, value] : row.items()) {
    if (key == "op" || key == "name" || key == "plugin") {
      EXPECT_FALSE(value.get<std::string>().empty()) << row;
    } else {
      EXPECT_TRUE(value.is_number()) << key << " " << row;
      EXPECT_GE(value.get<double>(), 0) << key << " " << row;
    }
  }
  EXPECT_GT(row.at("seconds"), 0) << row;
}

void expect_ratio(const json& row, const char* ratio, const char* of, const char* to) {
  const double want = row.at(of).get<double>() / row.at(to).get<double>();
  EXPECT_NEAR(row.at(ratio), want, 1e-9 * std::max(1.0, want)) << row;
}

std::set<std::string> ops(const json& report) {
  std::set<std::string> out;
  for (const json& row : report.at("rows")) out.insert(row.at("op"));
  return out;
}

int calls(const json& report, const std::string& op) {
  int out = 0;
  for (const json& row : report.at("rows")) out += row.at("op") == op ? row.at("calls").get<int>() : 0;
  return out;
}

TEST(Bench, kernels_are_those_of_the_program_beside_their_floors) {
  const Workplace place;
  const json r = report(place, {"kernels", "tiny.lua", "--threads", "1"});
  EXPECT_EQ(keys(r), (std::set<std::string>{"bench", "core_latency_ns", "plugin", "recipe", "rounds", "rows",
                                            "threads"}));
  EXPECT_EQ(r.at("bench"), "kernels");
  EXPECT_EQ(r.at("recipe"), "tiny");
  EXPECT_EQ(r.at("plugin"), "kernels/cpu");
  EXPECT_EQ(r.at("threads"), 1);
  std::set<std::string> names;
  for (const json& row : r.at("rows")) {
    expect_row(row, {"op", "name", "plugin", "calls", "seconds", "flops_per_s", "bytes_per_s",
                     "floor_seconds", "of_floor", "probe_flops_per_s", "probe_bytes_per_s"});
    expect_ratio(row, "of_floor", "floor_seconds", "seconds");
    EXPECT_TRUE(names.insert(row.at("name")).second) << "twice: " << row;
    EXPECT_TRUE(row.at("name").get<std::string>().starts_with(row.at("op").get<std::string>()));
    EXPECT_GT(row.at("bytes_per_s"), 0);
    EXPECT_GT(row.at("floor_seconds"), 0);
  }
  EXPECT_EQ(calls(r, "attention"), 2) << "two layers";
  EXPECT_EQ(calls(r, "layernorm"), 1) << "of the embedding";
  EXPECT_EQ(calls(r, "add_layernorm"), 4) << "two a layer, but for the first, and the last";
  EXPECT_EQ(calls(r, "linear_cross_entropy_grad"), 1);
  for (const char* op :
       {"linear", "linear_dgrad", "linear_wgrad", "attention_dgrad", "dropout", "clip_scale"})
    EXPECT_TRUE(ops(r).contains(op)) << op;
  EXPECT_FALSE(ops(r).contains("update")) << "the optimizer's";
  EXPECT_TRUE(names.contains("linear 128 x 64 x 16")) << r;
}

TEST(Bench, kernels_take_the_plugin_that_the_recipe_names) {
  const Workplace place;
  const json r = report(place, {"kernels", "tiny.lua", "kernels=kernels/reference", "mode=exact"});
  EXPECT_EQ(r.at("plugin"), "kernels/reference");
  EXPECT_EQ(calls(r, "attention"), 16) << "eight shards";
}

void expect_comm(const json& r, const std::string& plugin, int ranks) {
  EXPECT_EQ(keys(r), (std::set<std::string>{"bench", "core_latency_ns", "plugin", "ranks", "rows"}));
  EXPECT_EQ(r.at("plugin"), plugin);
  EXPECT_EQ(r.at("ranks"), ranks);
  std::set<std::pair<std::string, int>> seen;
  for (const json& row : r.at("rows")) {
    expect_row(row, {"op", "bytes", "calls", "seconds", "bytes_per_s", "bare_seconds", "of_bare"});
    expect_ratio(row, "of_bare", "bare_seconds", "seconds");
    expect_ratio(row, "bytes_per_s", "bytes", "seconds");
    EXPECT_GE(row.at("calls"), 2);
    EXPECT_TRUE(seen.emplace(row.at("op"), row.at("bytes")).second) << row;
  }
}

TEST(Bench, comm_measures_every_collective_at_every_size_among_processes) {
  const Workplace place;
  const json r = report(place, {"comm", "--sizes", "1KiB,64KiB", "tiny.lua", "comm=comm/ucx"});
  expect_comm(r, "comm/ucx", 2);
  EXPECT_EQ(r.at("rows").size(), 10u);
  EXPECT_EQ(ops(r),
            (std::set<std::string>{"all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"}));
}

TEST(Bench, comm_measures_ranks_that_are_threads_and_sizes_that_do_not_divide) {
  const Workplace place;
  const json r =
      report(place, {"comm", "tiny.lua", "-n", "3", "--sizes", "1000", "--ops", "all_to_all,all_gather"});
  expect_comm(r, "comm/local", 3);
  EXPECT_EQ(ops(r), (std::set<std::string>{"all_gather", "all_to_all"}));
  for (const json& row : r.at("rows")) EXPECT_EQ(row.at("bytes"), 996) << "83 elements for each of 3";
}

TEST(Bench, optimizer_is_the_recipes_beside_an_add_over_its_arrays) {
  const Workplace place;
  for (const std::string optim : {"adamw", "sgd"}) {
    const json r = report(place, {"optimizer", "tiny.lua", "optim=" + optim});
    EXPECT_EQ(keys(r),
              (std::set<std::string>{"bench", "core_latency_ns", "recipe", "rounds", "rows", "threads"}));
    ASSERT_EQ(r.at("rows").size(), 1u);
    const json& row = r.at("rows")[0];
    expect_row(row, {"plugin", "parameters", "seconds", "bytes_per_s", "add_bytes_per_s", "floor_seconds",
                     "of_floor"});
    expect_ratio(row, "of_floor", "floor_seconds", "seconds");
    EXPECT_EQ(row.at("plugin"), "optimizer/" + optim);
    EXPECT_EQ(row.at("parameters"), 10944);
    const double bytes = row.at("bytes_per_s").get<double>() * row.at("seconds").get<double>();
    EXPECT_NEAR(bytes / 10944, optim == "adamw" ? 28 : 20, 1e-6) << "gradients are only read";
  }
}

void expect_step(const Workplace& place, const std::string& comm, int ranks) {
  SCOPED_TRACE(comm + " on " + std::to_string(ranks));
  const std::vector<std::string> on{"tiny.lua", "comm=" + comm, "-n", std::to_string(ranks)};
  const auto with = [&on](const char* verb) {
    std::vector<std::string> out{verb};
    out.insert(out.end(), on.begin(), on.end());
    return out;
  };
  const json r = report(place, with("step"));
  auto planning = with("plan");
  planning.emplace_back("--json");
  const json plan = json::parse(place.run(planning).out);
  EXPECT_EQ(keys(r),
            (std::set<std::string>{"bench", "communication", "compute_seconds", "core_latency_ns",
                                   "floor_seconds", "instructions", "mesh", "of_floor", "overhead_ns",
                                   "probe_bytes_per_s", "probe_flops_per_s", "ranks", "recipe", "rounds",
                                   "rows", "seconds", "threads", "tokens", "tokens_per_s"}));
  EXPECT_EQ(r.at("instructions"), plan.at("instructions"));
  EXPECT_EQ(r.at("mesh"), plan.at("mesh"));
  EXPECT_EQ(r.at("ranks"), ranks);
  EXPECT_EQ(r.at("tokens"), 128) << "of all ranks";
  EXPECT_GT(r.at("overhead_ns"), 0);
  expect_ratio(r, "of_floor", "floor_seconds", "seconds");
  expect_ratio(r, "tokens_per_s", "tokens", "seconds");
  double compute = 0;
  for (const json& row : r.at("rows")) {
    expect_row(row, {"op", "calls", "seconds", "of_step", "floor_seconds", "of_floor"});
    compute += row.at("seconds").get<double>();
  }
  EXPECT_NEAR(compute, r.at("compute_seconds"), 1e-9);
  EXPECT_EQ(calls(r, "attention"), 2);
  EXPECT_GE(calls(r, "update"), 1);
  EXPECT_FALSE(ops(r).contains("all_reduce")) << "not on the compute lane";
  const json& communication = r.at("communication");
  EXPECT_EQ(keys(communication), (std::set<std::string>{"alone_seconds", "exposed_seconds", "hidden"}));
  EXPECT_EQ(communication.at("alone_seconds") > 0, ranks > 1);
  EXPECT_GE(communication.at("hidden"), 0);
  EXPECT_LE(communication.at("hidden"), 1);
}

TEST(Bench, step_of_one_rank_threads_and_processes) {
  const Workplace place;
  expect_step(place, "comm/local", 1);
  expect_step(place, "comm/local", 2);
  expect_step(place, "comm/ucx", 2);
}

TEST(Bench, without_a_part_measures_all_four) {
  const Workplace place;
  std::vector<std::string> measured;
  for (const json& r : reports(place, {"tiny.lua", "--sizes", "4096"})) measured.push_back(r.at("bench"));
  EXPECT_EQ(measured, (std::vector<std::string>{"kernels", "comm", "optimizer", "step"}));
}

TEST(Bench, prints_tables_and_leaves_nothing_behind) {
  const Workplace place;
  const auto result =
      place.run({"bench", "tiny.lua", "--sizes", "4096", "--rounds", "1"}, {"TMPDIR=" + place.path()});
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* text : {"kernels, tiny, kernels/cpu, ", "\nlinear 128 x 64 x 16 ",
                           "comm, comm/local, 2 ranks; core to core ", "\nall_reduce ", "optimizer, tiny, ",
                           "\noptimizer/adamw ", "step, tiny, dp 1, 1 ranks, ", "\nexecutor "}) {
    EXPECT_NE(result.out.find(text), std::string::npos) << text << "\nin\n" << result.out;
  }
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(place.path()))
    left.insert(entry.path().filename());
  EXPECT_EQ(left, (std::set<std::string>{"text.txt", "short.txt", "tiny.lua"}));
}

TEST(Bench, mistakes) {
  const Workplace place;
  const auto expect_refused = [&](std::vector<std::string> arguments, int code, const std::string& message) {
    arguments.insert(arguments.begin(), "bench");
    const auto result = place.run(arguments);
    EXPECT_EQ(result.code, code);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, message);
  };
  expect_refused({"kernel"}, 2, "error[R023]: unknown benchmark 'kernel'\n  fix: did you mean 'kernels'?\n");
  expect_refused(
      {"xyz"}, 2,
      "error[R023]: unknown benchmark 'xyz'\n  fix: kernels, comm, optimizer, step, or a recipe (.lua, "
      ".json)\n");
  expect_refused({"step", "tiny.lua", "other.lua"}, 2,
                 "error[R023]: a second recipe: 'other.lua'\n  fix: tenon bench --help\n");
  expect_refused({"comm", "tiny.lua", "-n", "1"}, 2,
                 "error[R005]: communication of 1 rank\n  --> -n\n  fix: 2 or more\n");
  expect_refused({"comm", "tiny.lua", "--ops", "allreduce"}, 2,
                 "error[R005]: no collective 'allreduce'\n  --> --ops\n  fix: did you mean 'all_reduce'?\n");
  expect_refused(
      {"comm", "tiny.lua", "-n", "3", "--sizes", "1024,8"}, 2,
      "error[R005]: 8 bytes are less than an element for each of 3 ranks\n  --> --sizes\n  fix: larger "
      "messages\n");
  expect_refused({"kernels", "tiny.lua", "--rounds", "0"}, 2,
                 "error[R023]: --rounds: Value 0 not in range 1 to 10000\n  fix: tenon bench --help\n");
  const auto option = place.run({"bench", "kernels", "isa=avx2"});
  EXPECT_EQ(option.code, 2);
  EXPECT_NE(option.err.find("unknown parameter 'isa'"), std::string::npos) << option.err;
  EXPECT_NE(option.err.find("kernels = t.plugin(\"kernels/cpu\", { isa = \"avx2\" })"), std::string::npos)
      << option.err;
  const auto no_data =
      place.run({"bench", "step", "tiny.lua", "file=missing.txt", "-n", "2", "comm=comm/ucx"});
  EXPECT_EQ(no_data.code, 3);
  EXPECT_NE(no_data.err.find("missing.txt"), std::string::npos) << no_data.err;
  EXPECT_EQ(no_data.err.find("tenon resume"), std::string::npos) << no_data.err;
}

}  // namespace
}  // namespace tenon::test
