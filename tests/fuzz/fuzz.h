// What a parser promises for any bytes at all: a value, or errors with a code that is known, a cause and a
// kind; nothing read out of bounds, no time or memory beyond the input's size. A target feeds one parser. The
// fuzzer (fuzzer.cpp) looks for bytes that break the promise, the replay (replay_test.cpp) feeds the
// committed corpus.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace tenon::fuzz {

enum class Form : uint8_t {
  bytes,  // mutated byte by byte
  json,   // mutated value by value, too
};

struct Target {
  std::string_view name;
  Form form = Form::bytes;
  // The errors that one input provokes. Calls broken() where a promise about values is broken.
  std::vector<Error> (*run)(std::string_view input) = nullptr;
  // Every code that an input can provoke; the corpus provokes each.
  std::vector<std::string_view> codes;
  // The files and folders ("core/plan/": but for its tests) that give them, under core, plugins and scripts,
  // ...
  std::vector<std::string_view> sources;
  // ... and their codes that no input can provoke, with the reason.
  std::vector<std::pair<std::string_view, std::string_view>> unreachable = {};
};

const Target& command_line();
const Target& lua();
const Target& manifest();
const Target& recipe();
const Target& rendezvous();
const Target& rows();
const Target& schedule();
const Target& shard_header();

// Ends the process with these words: the fuzzer keeps the input, the replay fails.
[[noreturn]] void broken(std::string_view what);
// Runs an input and holds its errors against the promise.
std::vector<Error> feed(const Target& target, std::string_view input);

// Takes values off the front of the input; zeros when it is used up.
class Bytes {
 public:
  explicit Bytes(std::string_view input) : rest_(input) {}
  bool empty() const { return rest_.empty(); }
  uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto out = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return out;
  }
  // -128 to 127: enough to be out of every small range, on both sides.
  int small() { return static_cast<int8_t>(byte()); }
  std::string_view take(size_t count) {
    const std::string_view out = rest_.substr(0, count);
    rest_.remove_prefix(out.size());
    return out;
  }
  std::string_view rest() { return take(rest_.size()); }

 private:
  std::string_view rest_;
};

}  // namespace tenon::fuzz
