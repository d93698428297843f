// Command lines, a word on each line of the input.
#include "cli/command_line.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "fuzz.h"

namespace tenon::fuzz {
namespace {

Result<cli::CommandLine> parse(std::vector<std::string> words) {
  words.insert(words.begin(), "tenon");
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  return cli::parse_command_line(static_cast<int>(argv.size()), argv.data());
}

// What a launcher says, a worker understands.
void check_worker(const cli::WorkerOptions& options) {
  std::vector<std::string> words = cli::words_of(options);
  words.insert(words.begin(), "worker");
  const auto again = parse(words);
  if (!again.ok()) broken("a worker's words are not understood: " + again.error().text());
  if (cli::words_of(again->arguments.worker) != cli::words_of(options)) broken("a worker's words change");
}

// Nothing that a simulated time would be infinite or no number of.
void check_machine(const cli::GivenMachine& machine) {
  for (const auto& given : {machine.flops, machine.memory_bytes, machine.link_bytes}) {
    if (given && !(std::isfinite(*given) && *given > 0)) broken("a machine without a speed");
  }
  if (machine.link_latency && !(std::isfinite(*machine.link_latency) && *machine.link_latency >= 0))
    broken("a latency that is no time");
}

std::vector<Error> feed_command_line(std::string_view input) {
  std::vector<std::string> words;
  for (size_t at = 0; at < input.size();) {
    const size_t end = std::min(input.find('\n', at), input.size());
    const std::string_view word = input.substr(at, end - at);
    words.emplace_back(word.substr(0, word.find('\0')));
    at = end + 1;
  }
  const auto line = parse(words);
  if (!line.ok()) return {line.error()};
  const cli::Arguments& arguments = line->arguments;
  if (line->verb.has_value() == !line->text.empty()) broken("neither a verb nor a text, or both");
  if (arguments.ranks < 0 || arguments.threads < 0) broken("a negative number of ranks or threads");
  check_machine(arguments.plan.machine);
  if (line->verb == cli::Verb::worker) check_worker(arguments.worker);
  const auto traced = cli::steps_of(arguments.tracing, 0, 10);
  return traced.ok() ? std::vector<Error>{} : std::vector<Error>{traced.error()};
}

}  // namespace

const Target& command_line() {
  static const Target target{"command_line",
                             Form::bytes,
                             feed_command_line,
                             {"R004", "R005", "R023"},
                             {"command_line.cpp", "tracing.cpp", "worker_words.cpp"}};
  return target;
}

}  // namespace tenon::fuzz
