#include "workplace.hpp"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "run/checkpoint/load.h"

namespace tenon::test {

std::string words(size_t bytes) {
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

Workplace::Workplace() {
  std::string name = testing::TempDir() + "tenon-e2e-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) std::abort();
  path_ = std::filesystem::canonical(name);
  write("text.txt", words(3501));
  write("short.txt", words(kShortText));
  write("tiny.lua", kRecipe);
}

void Workplace::write(const std::string& name, const std::string& text) const {
  std::ofstream(at(name), std::ios::binary) << text;
}

std::string Workplace::read(const std::string& name) const {
  std::ifstream in(at(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void Workplace::write_changed(const std::string& name, const std::string& from, const std::string& to) const {
  std::string text = kRecipe;
  const size_t place = text.find(from);
  ASSERT_NE(place, std::string::npos) << from;
  write(name, text.replace(place, from.size(), to));
}

std::unique_ptr<Command> Workplace::start(std::vector<std::string> arguments,
                                          const std::vector<std::string>& environment) const {
  arguments.insert(arguments.begin(), TENON);
  return std::make_unique<Command>(arguments, path_, environment);
}

CommandResult Workplace::run(const std::vector<std::string>& arguments,
                             const std::vector<std::string>& environment) const {
  CommandResult result = start(arguments, environment)->finish(kPatience);
  EXPECT_FALSE(result.timed_out) << result.out << result.err;
  return result;
}

std::vector<json> parse_lines(const std::string& text) {
  std::vector<json> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    json value = json::parse(line, nullptr, false);
    EXPECT_FALSE(value.is_discarded()) << line;
    if (!value.is_discarded()) out.push_back(std::move(value));
  }
  return out;
}

std::vector<json> events(const std::vector<json>& all, const std::string& kind) {
  std::vector<json> out;
  for (const json& value : all) {
    if (value.value("event", "") == kind) out.push_back(value);
  }
  return out;
}

void PrintTo(const Step& step, std::ostream* out) {
  char text[128];
  std::snprintf(text, sizeof text, "step %lld loss %.17g norm %.17g tokens %g",
                static_cast<long long>(step.step), step.loss, step.norm, step.tokens);
  *out << text;
}

std::vector<Step> steps_of(const std::string& out) {
  std::vector<Step> steps;
  for (const json& e : events(parse_lines(out), "step")) {
    steps.push_back({e.at("step"), e.at("loss"), e.at("grad_norm"), e.at("tokens")});
  }
  return steps;
}

SavedState saved_state(const std::string& run) {
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

void expect_same(const SavedState& got, const SavedState& want, const std::string& what) {
  EXPECT_EQ(got.step, want.step) << what;
  EXPECT_FALSE(want.tensors.empty()) << what;
  ASSERT_EQ(got.tensors.size(), want.tensors.size()) << what;
  for (const auto& [name, bytes] : want.tensors) {
    const auto it = got.tensors.find(name);
    ASSERT_NE(it, got.tensors.end()) << what << ": " << name;
    EXPECT_TRUE(it->second == bytes) << what << ": the bytes of " << name << " differ";
  }
}

CommandRecord record_of(const Workplace& place, const std::string& run,
                        const std::vector<std::string>& arguments) {
  CommandRecord record;
  record.result = place.run(arguments);
  EXPECT_EQ(record.result.code, 0) << record.result.out << record.result.err;
  record.steps = steps_of(record.result.out);
  record.saved = saved_state(place.at(run));
  return record;
}

CommandRecord train(const Workplace& place, const std::string& run, int ranks,
                    const std::vector<std::string>& parameters) {
  std::vector<std::string> arguments{"train",     "tiny.lua", "--json", "-n", std::to_string(ranks),
                                     "--run-dir", run};
  arguments.insert(arguments.end(), parameters.begin(), parameters.end());
  return record_of(place, run, arguments);
}

}  // namespace tenon::test
