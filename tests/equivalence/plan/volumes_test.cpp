// What strategies' pages say that each rank sends is what their programs send, for every pair of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/show/transfer_cost.h"
#include "strategy_programs.hpp"
#include "traffic.h"

namespace tenon::test {
namespace {

struct Strategy {
  const char* words;
  const char* axis;
};
constexpr Strategy kStrategies[] = {
    {"data", "dp"},        {"data zero1", "dp"}, {"data zero2", "dp"}, {"data zero3", "dp"},
    {"data expert", "dp"}, {"tensor", "tp"},     {"sequence", "tp"},   {"ring", "cp"},
    {"all_gather", "cp"},  {"all_to_all", "cp"}, {"pipeline", "pp"},
};

Combination combination(const std::string& words, const decltype(Combination::mesh)& mesh) {
  const bool experts = words.find("expert") != std::string::npos;
  const bool stages = words.find("pipeline") != std::string::npos;
  std::string name = words;
  for (const auto& [axis, size] : mesh) name += fmt::format(" {}{}", axis, size);
  std::ranges::replace_if(
      name, [](char letter) { return std::isalnum(letter) == 0; }, '_');
  return {name, experts ? "moe" : "llama", mesh, words, stages ? "1f1b" : "", 2};
}

Combination of_groups(int groups, Combination c) {
  c.groups = groups;
  c.name += fmt::format("_groups{}", groups);
  return c;
}

std::vector<Combination> combinations() {
  std::vector<Combination> out;
  for (const Strategy& a : kStrategies) {
    out.push_back(combination(a.words, {{a.axis, 2}}));
    if (a.axis != std::string_view("pp")) out.push_back(combination(a.words, {{a.axis, 4}}));
    for (const Strategy& b : kStrategies) {
      if (std::string_view(a.axis) == b.axis) continue;
      out.push_back(combination(fmt::format("{} {}", a.words, b.words), {{a.axis, 2}, {b.axis, 2}}));
    }
  }
  out.push_back(combination("pipeline", {{"pp", 3}}));
  for (const std::string words : {"tensor", "sequence"}) {
    out.push_back(combination("pipeline " + words, {{"pp", 3}, {"tp", 4}}));
    for (const int groups : {1, 2}) {  // several ranks hold a key head
      out.push_back(of_groups(groups, combination(words, {{"tp", 4}})));
      out.push_back(
          of_groups(groups, combination("data pipeline zero1 " + words, {{"tp", 4}, {"pp", 2}, {"dp", 2}})));
    }
  }
  for (const char* zero : {"zero1", "zero2", "zero3"})
    out.push_back(combination(fmt::format("data expert {}", zero), {{"dp", 2}}));
  for (const char* words : {"data", "data zero1", "data zero2:dp_in", "data zero3:dp_out", "data zero3",
                            "data zero3:dp/dp_in", "data zero3:dp/dp_out"}) {
    out.push_back(combination(words, {{"dp_out", 2}, {"dp_in", 2}}));
    out.push_back(combination(fmt::format("{} sequence", words), {{"tp", 2}, {"dp_in", 2}, {"dp_out", 2}}));
  }
  return out;
}

class Volume : public testing::TestWithParam<Combination> {};

TEST_P(Volume, of_each_lane_and_phase_is_what_the_sizes_say) {
  const Combination& c = GetParam();
  for (const Program& program : programs_of(c)) {
    const Traffic traffic(c, {}, program.class_index);
    for (uint32_t lane = 1; lane < program.lanes.size(); ++lane) {
      for (Phase phase : {Phase::forward, Phase::input_grad, Phase::weight_grad, Phase::step}) {
        double bytes = 0;
        for (const Instr& instr : program.instrs)
          if (instr.lane == lane && instr.phase == phase) bytes += cost_of_transfer(program, instr).sends;
        EXPECT_DOUBLE_EQ(bytes, traffic.bytes(program.lanes[lane], phase))
            << "class " << program.class_index << ", lane " << program.lanes[lane] << ", phase "
            << name_of(phase);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(pairs, Volume, testing::ValuesIn(combinations()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tenon::test
