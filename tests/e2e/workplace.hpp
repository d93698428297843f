// A folder with a text and a recipe whose every part is a parameter, and what came out of runs in it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "run/checkpoint/load.h"
#include "support/command.hpp"

namespace tenon::test {

using nlohmann::json;

constexpr double kPatience = 120;  // seconds until a command counts as hanging, however loaded the machine

// Words in a fixed random order: something that a small model learns within a few steps.
inline std::string words(size_t bytes) {
  const char* const list[] = {"the", "quick", "brown", "fox", "jumps", "over",
                              "a",   "lazy",  "dog",   "and", "sleeps"};
  std::string out;
  for (uint32_t state = 1; out.size() < bytes; state = state * 1664525u + 1013904223u) {
    out += list[(state >> 16) % std::size(list)];
    out += ' ';
  }
  out.resize(bytes);
  return out;
}

// 20 samples of 16 tokens, the last one mostly padding.
constexpr size_t kShortText = 16 * 19 + 5;

constexpr const char* kRecipe = R"lua(local t = require "tenon"
local p = t.params {
  file = t.string { "text.txt" },
  steps = t.count { 6, min = 1 },
  batch = t.count { 8, min = 1 },
  valid = t.number { 0.1, min = 0 },
  mode = t.string { "fast" },
  dp = t.count { 0 },
  comm = t.string { "comm/local" },
  kernels = t.string { "kernels/cpu" },
  save = t.count { 0 },
  keep = t.count { 2 },
  eval = t.count { 0 },
  optim = t.choice { "adamw", of = { "adamw", "sgd" } },
  clip = t.number { 1.0, min = 0 },
  lr = t.number { 3e-3, min = 0 },
  width = t.count { 16 },
  vocab = t.count { 256 },
  dropout = t.number { 0.1 },
}
local optim = p.optim == "adamw"
  and t.optim.adamw { lr = p.lr, clip = p.clip, weight_decay = 0.1, groups = { { match = { "*.bias" }, weight_decay = 0 } } }
  or t.optim.sgd { lr = p.lr, clip = p.clip, momentum = 0.9 }
return t.run {
  steps = p.steps, batch = p.batch, context = 16, seed = 11,
  model = t.models.gpt2 { layers = 2, heads = 2, width = p.width, vocab = p.vocab, context = 16, dropout = p.dropout },
  numerics = p.mode,
  data = t.data.text { file = p.file, valid = p.valid },
  optim = optim,
  mesh = t.mesh { dp = p.dp },
  kernels = p.kernels, comm = p.comm,
  eval = { every = p.eval, batches = 2 },
  save = { every = p.save, keep = p.keep },
}
)lua";

class Workplace {
 public:
  Workplace() {
    std::string name = testing::TempDir() + "tenon-e2e-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = std::filesystem::canonical(name);
    write("text.txt", words(3501));
    write("short.txt", words(kShortText));
    write("tiny.lua", kRecipe);
  }
  ~Workplace() { std::filesystem::remove_all(path_); }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  const std::string& path() const { return path_; }
  std::string at(const std::string& name) const { return path_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(at(name), std::ios::binary) << text;
  }
  std::string read(const std::string& name) const {
    std::ifstream in(at(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // The recipe with one place changed, which must be there.
  void write_changed(const std::string& name, const std::string& from, const std::string& to) const {
    std::string text = kRecipe;
    const size_t place = text.find(from);
    ASSERT_NE(place, std::string::npos) << from;
    write(name, text.replace(place, from.size(), to));
  }

  std::unique_ptr<Command> start(std::vector<std::string> arguments,
                                 const std::vector<std::string>& environment = {}) const {
    arguments.insert(arguments.begin(), TENON);
    return std::make_unique<Command>(arguments, path_, environment);
  }
  CommandResult run(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& environment = {}) const {
    CommandResult result = start(arguments, environment)->finish(kPatience);
    EXPECT_FALSE(result.timed_out) << result.out << result.err;
    return result;
  }

 private:
  std::string path_;
};

// One JSON value per line; a line that does not parse is a failure.
inline std::vector<json> parse_lines(const std::string& text) {
  std::vector<json> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    json value = json::parse(line, nullptr, false);
    EXPECT_FALSE(value.is_discarded()) << line;
    if (!value.is_discarded()) out.push_back(std::move(value));
  }
  return out;
}

inline std::vector<json> events(const std::vector<json>& all, const std::string& kind) {
  std::vector<json> out;
  for (const json& value : all) {
    if (value.value("event", "") == kind) out.push_back(value);
  }
  return out;
}

struct Step {
  int64_t step = 0;
  double loss = 0, norm = 0, tokens = 0;
  bool operator==(const Step&) const = default;
};
inline void PrintTo(const Step& step, std::ostream* out) {
  char text[128];
  std::snprintf(text, sizeof text, "step %lld loss %.17g norm %.17g tokens %g",
                static_cast<long long>(step.step), step.loss, step.norm, step.tokens);
  *out << text;
}

inline std::vector<Step> steps_of(const std::string& out) {
  std::vector<Step> steps;
  for (const json& e : events(parse_lines(out), "step")) {
    steps.push_back({e.at("step"), e.at("loss"), e.at("grad_norm"), e.at("tokens")});
  }
  return steps;
}

struct SavedState {
  int64_t step = -1;
  std::map<std::string, std::string> tensors;  // bytes by name: parameters and optimizer state
};

// The newest checkpoint of a run, every byte verified.
inline SavedState saved_state(const std::string& run) {
  checkpoint::PosixStorage storage;
  SavedState out;
  const auto latest = checkpoint::find_latest(storage, run + "/checkpoints");
  EXPECT_TRUE(latest.ok()) << latest.error().text();
  if (!latest.ok()) return out;
  const auto opened = checkpoint::Checkpoint::open(storage, latest->directory);
  EXPECT_TRUE(opened.ok()) << opened.error().text();
  if (!opened.ok()) return out;
  out.step = latest->id.step;
  for (const auto& [name, tensor] : opened->manifest().tensors) {
    std::string& bytes = out.tensors[name];
    bytes.resize(static_cast<size_t>(tensor.bytes()));
    const auto read = opened->read(name, bytes.data(), bytes.size());
    EXPECT_TRUE(read.ok()) << read.error().text();
  }
  return out;
}

inline void expect_same(const SavedState& got, const SavedState& want, const std::string& what) {
  EXPECT_EQ(got.step, want.step) << what;
  EXPECT_FALSE(want.tensors.empty()) << what;
  ASSERT_EQ(got.tensors.size(), want.tensors.size()) << what;
  for (const auto& [name, bytes] : want.tensors) {
    const auto it = got.tensors.find(name);
    ASSERT_NE(it, got.tensors.end()) << what << ": " << name;
    EXPECT_TRUE(it->second == bytes) << what << ": the bytes of " << name << " differ";
  }
}

// What a run with --json printed and saved.
struct RunRecord {
  CommandResult result;
  std::vector<Step> steps;
  SavedState saved;
};

// What a command says and saves in folder `run`.
inline RunRecord record_of(const Workplace& place, const std::string& run,
                           const std::vector<std::string>& arguments) {
  RunRecord record;
  record.result = place.run(arguments);
  EXPECT_EQ(record.result.code, 0) << record.result.out << record.result.err;
  record.steps = steps_of(record.result.out);
  record.saved = saved_state(place.at(run));
  return record;
}

inline RunRecord train(const Workplace& place, const std::string& run, int ranks,
                       const std::vector<std::string>& parameters) {
  std::vector<std::string> arguments{"train",     "tiny.lua", "--json", "-n", std::to_string(ranks),
                                     "--run-dir", run};
  arguments.insert(arguments.end(), parameters.begin(), parameters.end());
  return record_of(place, run, arguments);
}

}  // namespace tenon::test
