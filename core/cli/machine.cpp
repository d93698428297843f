#include "cli/machine.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace tenon::cli {
namespace {

// A value of the machine: where it is, and how it is said.
struct Part {
  const char* name;
  std::optional<double> GivenMachine::*given;
  double Machine::*value;
  const char* before;
  const char* unit;  // "": a time
};
constexpr Part kParts[] = {
    {"flops", &GivenMachine::flops, &Machine::flops, "", "FLOP/s"},
    {"memory_bandwidth", &GivenMachine::memory_bytes, &Machine::memory_bytes, "memory ", "B/s"},
    {"link_bandwidth", &GivenMachine::link_bytes, &Machine::link_bytes, "links ", "B/s"},
    {"link_latency", &GivenMachine::link_latency, &Machine::link_latency, "after ", ""},
};

// "100 GFLOP/s"; a time in microseconds.
std::string with_unit(double value, const std::string& unit) {
  if (unit.empty()) return fmt::format("{:.4g} us", value * 1e6);
  const char* prefix = "";
  for (const auto& [name, factor] : {std::pair{"P", 1e15}, {"T", 1e12}, {"G", 1e9}, {"M", 1e6}, {"k", 1e3}}) {
    if (value < factor) continue;
    prefix = name;
    value /= factor;
    break;
  }
  return fmt::format("{:.4g} {}{}", value, prefix, unit);
}

}  // namespace

Machine machine_of(const GivenMachine& given) {
  Machine out;
  for (const Part& part : kParts) out.*part.value = (given.*part.given).value_or(out.*part.value);
  return out;
}

std::string description_of(const GivenMachine& given) {
  const Machine machine = machine_of(given);
  size_t known = 0;
  for (const Part& part : kParts) known += (given.*part.given).has_value() ? 1 : 0;
  const bool mixed = known > 0 && known < std::size(kParts);
  std::string out = known == 0 ? "an imagined machine: "
                    : mixed    ? "a machine given in part: "
                               : "the machine given: ";
  for (const Part& part : kParts) {
    if (&part != kParts) out += ", ";
    out += part.before + with_unit(machine.*part.value, part.unit);
    if (mixed && !(given.*part.given).has_value()) out += " (imagined)";
  }
  return out + fmt::format(", {} to start a kernel", with_unit(machine.launch, ""));
}

Json json_of(const GivenMachine& given) {
  const Machine machine = machine_of(given);
  Json out, imagined = Json::array();
  for (const Part& part : kParts) {
    out[part.name] = machine.*part.value;
    if (!(given.*part.given).has_value()) imagined.push_back(part.name);
  }
  out["imagined"] = imagined;
  return out;
}

}  // namespace tenon::cli
