// A folder with a text and a recipe whose every part is a parameter, and what came out of runs in it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.hpp"

namespace tenon::test {

using nlohmann::json;

// Words in a fixed random order: something that a small model learns within a few steps.
std::string words(size_t bytes);

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
  optim = t.choice { "adamw", of = { "adamw", "sgd", "lamb" } },
  clip = t.number { 1.0, min = 0 },
  lr = t.number { 3e-3, min = 0 },
  width = t.count { 16 },
  vocab = t.count { 256 },
  dropout = t.number { 0.1 },
}
local optim = p.optim == "lamb" and t.optim.lamb { lr = p.lr, clip = p.clip } or p.optim == "adamw"
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
  Workplace();
  ~Workplace() { std::filesystem::remove_all(path_); }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  const std::string& path() const { return path_; }
  std::string at(const std::string& name) const { return path_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const;
  std::string read(const std::string& name) const;
  // The recipe with one place changed, which must be there.
  void write_changed(const std::string& name, const std::string& from, const std::string& to) const;

  std::unique_ptr<Command> start(std::vector<std::string> arguments,
                                 const std::vector<std::string>& environment = {}) const;
  CommandResult run(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& environment = {}) const;

 private:
  std::string path_;
};

// One JSON value per line; a line that does not parse is a failure.
std::vector<json> parse_lines(const std::string& text);

std::vector<json> events(const std::vector<json>& all, const std::string& kind);

struct Step {
  int64_t step = 0;
  double loss = 0, norm = 0, tokens = 0;
  bool operator==(const Step&) const = default;
};
void PrintTo(const Step& step, std::ostream* out);

std::vector<Step> steps_of(const std::string& out);

struct SavedState {
  int64_t step = -1;
  std::map<std::string, std::string> tensors;  // bytes by name: parameters and optimizer state
};

// The newest checkpoint of a run, every byte verified.
SavedState saved_state(const std::string& run);

void expect_same(const SavedState& got, const SavedState& want, const std::string& what);

// What a run with --json printed and saved.
struct CommandRecord {
  CommandResult result;
  std::vector<Step> steps;
  SavedState saved;
};

// What a command says and saves in folder `run`.
CommandRecord record_of(const Workplace& place, const std::string& run,
                        const std::vector<std::string>& arguments);

CommandRecord train(const Workplace& place, const std::string& run, int ranks,
                    const std::vector<std::string>& parameters);

}  // namespace tenon::test
