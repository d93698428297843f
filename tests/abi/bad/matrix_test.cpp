// Plugins that are bad on purpose, in every slot: what the command makes of them.
#include <algorithm>
#include <regex>
#include <set>

#include "host/plugins/interfaces.h"
#include "workplace.hpp"

namespace tenon::test {
namespace {

namespace fs = std::filesystem;

// What stands beside the slots of tables.
const std::vector<std::string> kOwnSlots{"load", "init", "deinit", "get_interface", "unload"};
const std::vector<std::string> kDeadly{"crash", "exit", "_exit"};

bool among(const std::string& what, const std::set<std::string>& names) { return names.contains(what); }

// Functions without a code to answer with.
bool is_void(const std::string& slot) {
  return among(slot, {"close", "free", "domain_close", "group_close", "release", "abort", "stream_destroy",
                      "event_destroy", "deinit", "load", "unload"});
}
bool gives_pointer(const std::string& slot) {
  return among(slot,
               {"open", "domain_open", "alloc", "group_open", "prepare", "event_create", "get_interface"});
}

std::vector<std::string> deeds_of(const std::string& slot) {
  std::vector<std::string> out = kDeadly;
  if (gives_pointer(slot)) out.push_back("null");
  if (slot == "owner") out.push_back("code");
  if (!is_void(slot) && slot != "get_interface" && slot != "owner")
    for (const char* deed : {"code", "pending", "unknown", "text"}) out.push_back(deed);
  return out;
}

// A plugin, and a run that uses it.
struct Subject {
  std::string id;
  std::string interface;
  std::vector<std::string> arguments;  // of train
};

const std::vector<Subject>& subjects() {
  static const std::vector<Subject> all{
      {"kernels/cpu", TENON_KERNELS, {"tiny.lua"}},
      {"data/text", TENON_DATA, {"tiny.lua"}},
      {"optimizer/lamb", TENON_OPTIMIZER, {"tiny.lua", "optim=lamb"}},
      {"sink/jsonl", TENON_SINK, {"tiny.lua"}},
      {"frontend/lua", TENON_FRONTEND, {"tiny.lua"}},
      {"comm/local", TENON_COMM, {"tiny.lua", "-n", "2"}},
      {"comm/ucx", TENON_COMM, {"tiny.lua", "-n", "2", "comm=comm/ucx"}},
      {"schedule/1f1b", TENON_SCHEDULE, {"pipeline.lua", "-n", "2"}},
      {"parallel/data", TENON_PASS, {"tiny.lua", "-n", "2"}},
  };
  return all;
}

// What this host never calls (docs/howto/write-a-plugin.md): memory of a CPU is its own to copy, a CPU has
// neither streams nor events, transfers are waited for on the calling thread, and the end of a process is not
// left to plugins.
bool is_never_called(const std::string& interface, const std::string& slot) {
  if (slot == "unload") return true;
  if (interface == TENON_COMM) return among(slot, {"test", "wait_stream"});
  if (interface != TENON_KERNELS) return false;
  return slot == "copy" || slot.starts_with("stream_") || slot.starts_with("event_");
}

struct Case {
  const Subject* subject = nullptr;
  std::string slot, deed;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.subject->id << ", " << c.slot << ": " << c.deed; }

std::vector<Case> all_cases() {
  std::vector<Case> out;
  for (const Subject& subject : subjects()) {
    std::vector<std::string> slots = kOwnSlots;
    for (const InterfaceSpec* spec : all_interfaces()) {
      if (spec->id != subject.interface) continue;
      for (const Slot& slot : spec->slots) slots.push_back(slot.name);
    }
    // Whoever evaluates recipes has written the document before it ends.
    if (subject.interface == TENON_FRONTEND) std::erase(slots, "unload");
    for (const std::string& slot : slots)
      for (const std::string& deed : deeds_of(slot)) out.push_back({&subject, slot, deed});
  }
  return out;
}

// One deed of each slot, in turn.
std::vector<Case> some_cases() {
  std::vector<Case> out;
  std::string before;
  size_t turn = 0;
  for (const Subject& subject : subjects()) {
    if (subject.id == "comm/ucx") continue;
    std::map<std::string, std::vector<Case>> by_slot;
    for (const Case& c : all_cases())
      if (c.subject == &subject && !is_never_called(subject.interface, c.slot)) by_slot[c.slot].push_back(c);
    for (const auto& [slot, cases] : by_slot) {
      ++turn;
      // All that a plugin has beside its tables is alike in all of them.
      if (std::ranges::find(kOwnSlots, slot) != kOwnSlots.end() && subject.id != "kernels/cpu") continue;
      out.push_back(cases[turn % cases.size()]);
    }
  }
  return out;
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string out = info.param.subject->id + "_" + info.param.slot + "_" + info.param.deed;
  std::ranges::replace_if(
      out, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return out;
}

std::string file_of(const std::string& id) {
  std::string out = id;
  std::ranges::replace(out, '/', '-');
  return "libtenon-" + out + ".so";
}

// A folder where one plugin is bad.
class BadPlace {
 public:
  BadPlace() {
    place_.write_changed("pipeline.lua", "mesh = t.mesh { dp = p.dp },",
                         "mesh = t.mesh { pp = 2 }, strategies = { t.strategy.pipeline {} },");
  }

  CommandResult run(const std::string& id, const std::string& slot, const std::string& deed,
                    const std::vector<std::string>& arguments) const {
    fs::create_directory(place_.at("bad"));
    const std::string file = place_.at("bad/" + file_of(id));
    if (!fs::exists(file)) fs::create_symlink(TENON_BAD_PLUGIN, file);
    place_.write("bad/bad",
                 std::string(TENON_PLUGIN_DIR) + "\n" + slot + "\n" + deed + "\n" + place_.at("mark"));
    return place_.run(arguments, {"TENON_PLUGIN_PATH=" + place_.at("bad")});
  }
  CommandResult train(const Subject& subject, const std::string& slot, const std::string& deed,
                      const std::vector<std::string>& more = {"steps=4", "save=2", "eval=2"}) const {
    std::vector<std::string> arguments{"train", "--run-dir", "run"};
    arguments.insert(arguments.end(), subject.arguments.begin(), subject.arguments.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(subject.id, slot, deed, arguments);
  }
  // Whether the deed was done.
  bool marked() const { return fs::exists(place_.at("mark")); }
  const Workplace& place() const { return place_; }

 private:
  Workplace place_;
};

void expect_named(const CommandResult& result, const Case& c) {
  const std::string said = result.out + result.err;
  EXPECT_EQ(result.signal, 0) << said;
  EXPECT_GT(result.code, 0) << said;
  EXPECT_EQ(result.out.find("done"), std::string::npos) << said;
  EXPECT_NE(result.err.find("error["), std::string::npos) << said;
  // Before a file has an id it is named itself.
  const std::string who = c.slot == "load" ? file_of(c.subject->id) : c.subject->id;
  EXPECT_NE(result.err.find(who), std::string::npos) << said;
  if (std::ranges::find(kDeadly, c.deed) == kDeadly.end()) return;
  if (c.subject->interface == TENON_FRONTEND && c.slot == "evaluate") {
    // From the process where recipes are evaluated; its other functions the command's own process calls, too.
    EXPECT_NE(result.err.find("error[R017]: the front end frontend/lua ("), std::string::npos) << said;
    EXPECT_NE(result.err.find(" in evaluate "), std::string::npos) << said;
    return;
  }
  EXPECT_NE(result.err.find("error[W002]"), std::string::npos) << said;
  const std::string call = c.slot == "load" ? "the loading of its file" : c.slot;
  EXPECT_NE(result.err.find(who + ", " + call), std::string::npos) << said;
}

class Slots : public testing::TestWithParam<Case> {};

TEST_P(Slots, a_bad_one_is_named) {
  const Case& c = GetParam();
  const BadPlace bad;
  CommandResult result;
  if (c.slot == "encode" || c.slot == "decode") {
    ASSERT_EQ(bad.place().run({"train", "tiny.lua", "--run-dir", "run", "steps=1", "save=1"}).code, 0);
    result = bad.run(c.subject->id, c.slot, c.deed, {"sample", "run", "--prompt", "a", "--length", "2"});
  } else if (c.slot == "abort") {  // a loss that is no number
    result = bad.train(*c.subject, c.slot, c.deed, {"optim=sgd", "lr=1e30", "clip=0"});
  } else {
    result = bad.train(*c.subject, c.slot, c.deed);
  }
  const bool called = !is_never_called(c.subject->interface, c.slot);
  EXPECT_EQ(bad.marked(), called) << result.out << result.err;
  if (called)
    expect_named(result, c);
  else
    EXPECT_EQ(result.code, 0) << result.out << result.err;
}

INSTANTIATE_TEST_SUITE_P(all, Slots, testing::ValuesIn(all_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(sample, Slots, testing::ValuesIn(some_cases()), name_of);

// The matrix proves something only if a plugin that is not bad trains.
TEST(Wrapped, good_plugins_train) {
  for (const Subject& subject : subjects()) {
    const BadPlace bad;
    const CommandResult result = bad.train(subject, "none", "none");
    EXPECT_EQ(result.code, 0) << subject.id << result.out << result.err;
    EXPECT_NE(result.out.find("done"), std::string::npos);
  }
}

TEST(Matrix, has_a_plugin_of_every_interface) {
  for (const InterfaceSpec* spec : all_interfaces())
    EXPECT_NE(std::ranges::find(subjects(), spec->id, &Subject::interface), subjects().end()) << spec->id;
}

// -- Values -----------------------------------------------------------------------------------------------

void expect_values_refused(const std::string& id, const std::string& slot, const std::string& deed,
                           const std::string& text) {
  SCOPED_TRACE(id + ", " + slot + ": " + deed);
  const auto subject = std::ranges::find(subjects(), id, &Subject::id);
  ASSERT_NE(subject, subjects().end());
  const BadPlace bad;
  const CommandResult result = bad.train(*subject, slot, deed);
  EXPECT_TRUE(bad.marked());
  EXPECT_GT(result.code, 0) << result.out;
  EXPECT_NE(result.err.find(text), std::string::npos) << result.err;
  if (text.starts_with("error[N002]")) {
    EXPECT_NE(result.err.find(id + ", " + slot), std::string::npos) << result.err;
  }
  if (text.starts_with("error[N003]")) {
    EXPECT_TRUE(
        std::regex_search(result.err, std::regex("train program, instruction \\d+ \\([^)]*\\), " + id)))
        << result.err;
  }
  EXPECT_FALSE(fs::exists(bad.place().at("run/checkpoints/step-2"))) << "they were saved";
}

TEST(Values, of_data_beyond_what_it_declared_are_named) {
  expect_values_refused("data/text", "read", "limit",
                        "error[D007]: data/text gave 1073741824 as value 127 of");
  expect_values_refused("data/text", "read", "below", "error[D007]: data/text gave -2 as value 127 of field");
  expect_values_refused("data/text", "read", "unwritten",
                        "error[D007]: data/text left value 0 of field 'tokens'");
  expect_values_refused("data/text", "read", "past",
                        "error[D007]: data/text wrote past the 512 bytes of field");
  expect_values_refused("data/text", "read", "far", "in data/text, read");  // on the page behind
}

TEST(Values, that_a_kernel_left_out_are_no_numbers) {
  expect_values_refused("kernels/cpu", "enqueue", "unwritten", "error[N003]: step 1: element 0 of output ");
  expect_values_refused("kernels/cpu", "enqueue", "stale", "error[N003]: step 2: element 0 of output ");
}

// Of one kind of kernel, one element: no other, which takes it over, is blamed.
TEST(Values, that_a_kernel_left_out_in_part_are_of_its_own) {
  const BadPlace bad;
  const CommandResult result = bad.train(subjects().front(), "enqueue", "last");
  EXPECT_TRUE(bad.marked());
  EXPECT_GT(result.code, 0) << result.out;
  EXPECT_TRUE(
      std::regex_search(result.err, std::regex(R"(error\[N003\]: step 1: element [1-9]\d* of output 0 \()"
                                               R"([^)]*\) of linear was left unwritten)")))
      << result.err;
}

// A transfer is no kernel: kernels, which take over what it left, are not blamed.
TEST(Values, that_a_transfer_left_out_are_no_numbers) {
  const BadPlace bad;
  bad.place().write_changed(
      "zero3.lua", "mesh = t.mesh { dp = p.dp },",
      "mesh = t.mesh { dp = 2 }, strategies = { t.strategy.data {}, t.strategy.zero { stage = 3 } },");
  const CommandResult result =
      bad.run("comm/local", "none", "elsewhere",
              {"train", "--run-dir", "run", "zero3.lua", "-n", "2", "steps=4", "save=2", "eval=2"});
  EXPECT_TRUE(bad.marked());
  EXPECT_GT(result.code, 0) << result.out;
  EXPECT_NE(result.err.find("error[N001]: step 1: loss "), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("N003"), std::string::npos) << result.err;
}

TEST(Values, that_an_update_left_or_spoiled_are_seen) {
  expect_values_refused("optimizer/lamb", "step", "unwritten",
                        "error[N002]: step 1: the update changed nothing");
  expect_values_refused("optimizer/lamb", "step", "stale", "error[N002]: step 2: the update changed nothing");
  expect_values_refused("optimizer/lamb", "step", "nan",
                        "error[N002]: step 1: the update made nan of element 0 of ");
  expect_values_refused("optimizer/lamb", "stats", "unwritten", "error[N002]: step 1: a statistic of ");
  expect_values_refused("optimizer/lamb", "stats", "stale", "error[N002]: step 2: a statistic of ");
}

// -- Nothing: a success is answered, and nothing was done -------------------------------------------------

struct Idle {
  const char* id;
  const char* slot;
  const char* said;  // "": it goes unseen, for
  const char* why = "";
};
void PrintTo(const Idle& idle, std::ostream* out) { *out << idle.id << ", " << idle.slot; }

constexpr Idle kIdle[] = {
    {"kernels/cpu", "describe", "in kernels/cpu, enqueue"},  // no workspace, which the kernel has to have
    {"kernels/cpu", "enqueue", "error[N003]: step 1: element 0 of output 0 ("},
    {"optimizer/lamb", "describe", "in optimizer/lamb, st"},  // no state
    {"data/text", "describe", "error[A005]"},
    {"data/text", "read", "error[D007]"},
    {"data/text", "encode", "error[D007]: data/text, encode: it said that it succeeded, and wrote nothing"},
    {"data/text", "decode", "error[D007]: data/text, decode: it said that it succeeded, and wrote nothing"},
    {"schedule/1f1b", "rows", "error[S0"},
    {"optimizer/lamb", "init", "", "there may be nothing to prepare"},
    {"optimizer/lamb", "step", "error[N002]: step 1: the update changed nothing"},
    {"sink/jsonl", "write", "", "a record may be of no interest"},
    {"parallel/data", "run", "", "a strategy may find nothing to cut: all ranks do all"},
};

class IdleSlots : public testing::TestWithParam<Idle> {};

TEST_P(IdleSlots, are_seen_where_something_had_to_be_done) {
  const Idle& idle = GetParam();
  const auto subject = std::ranges::find(subjects(), idle.id, &Subject::id);
  const BadPlace bad;
  CommandResult result;
  if (std::string(idle.slot).ends_with("code") && subject->interface == TENON_DATA) {
    ASSERT_EQ(bad.place().run({"train", "tiny.lua", "--run-dir", "run", "steps=1", "save=1"}).code, 0);
    result = bad.run(idle.id, idle.slot, "nothing", {"sample", "run", "--prompt", "a", "--length", "2"});
  } else {
    result = bad.train(*subject, idle.slot, "nothing");
  }
  EXPECT_TRUE(bad.marked());
  const bool unseen = std::string(idle.said).empty();
  EXPECT_EQ(result.code == 0, unseen) << idle.why << result.out << result.err;
  EXPECT_NE((unseen ? result.out : result.err).find(unseen ? "done" : idle.said), std::string::npos)
      << result.out << result.err;
}

INSTANTIATE_TEST_SUITE_P(All, IdleSlots, testing::ValuesIn(kIdle), [](const auto& info) {
  std::string name = std::string(info.param.id) + "_" + info.param.slot;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

TEST(Plugins, one_that_ends_its_process_hides_no_other) {
  for (const std::string& deed : kDeadly) {
    const BadPlace bad;
    const CommandResult result = bad.run("sink/jsonl", "load", deed, {"plugins", "--json"});
    EXPECT_EQ(result.code, 0) << result.err;
    std::map<std::string, json> listed;
    const json list = parse_lines(result.out).at(0);
    for (const json& plugin : list) listed.emplace(plugin.at("path"), plugin);
    const json& refused = listed.at(bad.place().at("bad/" + file_of("sink/jsonl")));
    EXPECT_NE(refused.at("error").get<std::string>().find("a process that opens it"), std::string::npos)
        << refused;
    for (const Subject& subject : subjects()) {
      const json& good = listed.at(std::string(TENON_PLUGIN_DIR) + "/" + file_of(subject.id));
      EXPECT_FALSE(good.contains("error")) << good;
      EXPECT_NE(good.at("doc"), "");
    }
  }
}

TEST(Plugins, one_that_prints_or_leaves_a_process_behind_is_listed) {
  for (const char* const deed : {"print", "leave"}) {
    SCOPED_TRACE(deed);
    const BadPlace bad;
    const CommandResult result = bad.run("sink/jsonl", "load", deed, {"plugins", "--json"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.err, deed == std::string("print") ? "hello\n" : "");
    const std::vector<json> lines = parse_lines(result.out);
    ASSERT_EQ(lines.size(), 1u) << result.out;
    const std::string path = bad.place().at("bad/" + file_of("sink/jsonl"));
    const auto listed =
        std::ranges::find_if(lines[0], [&](const json& plugin) { return plugin.at("path") == path; });
    ASSERT_NE(listed, lines[0].end());
    EXPECT_FALSE(listed->contains("error")) << *listed;
  }
}

// -- How a process ends -----------------------------------------------------------------------------------

// One rank, ranks that are threads, and ranks that are processes.
const std::vector<Subject>& processes_of_kernels() {
  static const std::vector<Subject> all{
      {"kernels/cpu", TENON_KERNELS, {"tiny.lua"}},
      {"kernels/cpu", TENON_KERNELS, {"tiny.lua", "-n", "2"}},
      {"kernels/cpu", TENON_KERNELS, {"tiny.lua", "-n", "2", "comm=comm/ucx"}},
  };
  return all;
}

TEST(Ends, a_run_that_fails_fails_whatever_plugins_do_at_the_end_of_the_process) {
  for (const Subject& subject : processes_of_kernels()) {
    SCOPED_TRACE(subject.arguments.back());
    const BadPlace bad;
    const CommandResult result = bad.train(subject, "unload", "_exit", {"optim=sgd", "lr=1e30", "clip=0"});
    EXPECT_EQ(result.code, 1) << result.out << result.err;
    EXPECT_NE(result.err.find("error[N001]"), std::string::npos) << result.err;
    EXPECT_EQ(result.out.find("done"), std::string::npos) << result.out;
  }
}

TEST(Ends, a_run_that_is_done_has_ended_well) {
  for (const Subject& subject : processes_of_kernels()) {
    SCOPED_TRACE(subject.arguments.back());
    const BadPlace bad;
    const CommandResult result = bad.train(subject, "unload", "crash");
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.out.find("done"), std::string::npos) << result.out;
    EXPECT_FALSE(bad.marked());
  }
}

TEST(Ends, of_a_worker_that_a_plugin_ended_are_told) {
  const Case c{&processes_of_kernels().back(), "enqueue", "exit"};
  const BadPlace bad;
  const CommandResult result = bad.train(*c.subject, c.slot, c.deed);
  expect_named(result, c);
  EXPECT_TRUE(result.err.starts_with("error[W002]: rank ")) << result.err;
}

TEST(Ends, of_a_plugin_that_dies_of_a_closed_pipe_are_told) {
  for (const Subject& subject : processes_of_kernels()) {
    const Case c{&subject, "enqueue", "sigpipe"};
    SCOPED_TRACE(subject.arguments.back());
    const BadPlace bad;
    const CommandResult result = bad.train(subject, c.slot, c.deed);
    expect_named(result, c);
    EXPECT_NE(result.err.find("in kernels/cpu, enqueue"), std::string::npos) << result.err;
  }
}

TEST(Ends, nothing_where_a_plugin_writes_to_a_closed_pipe) {
  for (const Subject& subject : processes_of_kernels()) {
    SCOPED_TRACE(subject.arguments.back());
    const BadPlace bad;
    const CommandResult result = bad.train(subject, "enqueue", "pipe");
    EXPECT_TRUE(bad.marked());
    EXPECT_EQ(result.code, 0) << result.signal << result.err;
    EXPECT_NE(result.out.find("done"), std::string::npos) << result.out;
  }
}

}  // namespace
}  // namespace tenon::test
