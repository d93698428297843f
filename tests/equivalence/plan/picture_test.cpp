// Pictures of simulated steps: what is coloured is what is busy, and they stay small.
#include "picture.hpp"

#include "plan/show/blocks.h"
#include "schedule_case.hpp"
#include "strategy_programs.hpp"

namespace tenon::test {
namespace {

// Share of the step in which each lane of a picture does anything: for each program its work, what crosses
// its pipeline, and each other lane.
std::vector<double> busy_shares(const std::vector<Program>& programs, const Simulation& simulation) {
  std::map<std::pair<size_t, uint32_t>, std::vector<std::pair<double, double>>> times;
  for (const SimulatedInstr& at : simulation.instrs) {
    const Program& program = programs[at.program];
    const Instr& instr = program.instrs[at.id];
    const bool crosses = instr.lane != 0 && std::ranges::count(instr.axes, program.pipeline_axis) > 0;
    times[{at.program, crosses ? 1 : instr.lane == 0 ? 0 : 1 + instr.lane}].emplace_back(at.start, at.end);
  }
  std::vector<double> out;
  for (auto& [lane, spans] : times) {
    std::ranges::sort(spans);
    double busy = 0, until = 0;
    for (const auto& [start, end] : spans) {
      busy += std::max(0.0, end - std::max(start, until));
      until = std::max(until, end);
    }
    if (lane.second == 0) {
      EXPECT_NEAR(busy, simulation.classes[lane.first].busy, 1e-6 * simulation.seconds);
    }
    if (busy > 0) out.push_back(busy / simulation.seconds);
  }
  return out;
}

struct Case {
  Combination combination;
  std::vector<std::string> labels;  // that its picture has
  std::vector<std::string> never;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {{"data", "gpt2", {{"dp", 2}}, "data"}, {"layer 1"}, {"0", "F0"}},
      {{"zero", "llama", {{"dp", 4}}, "data zero3", "", 2}, {"F1", "B1"}, {"layer 1"}},
      {{"tensor", "llama", {{"tp", 2}}, "sequence"}, {"layer 2"}, {"0"}},
      {{"moe", "moe", {{"dp", 2}}, "data expert"}, {"layer 0"}, {"0"}},
      {{"pipeline", "gpt2", {{"pp", 3}, {"dp", 2}, {"tp", 2}}, "pipeline data tensor zero1", "1f1b", 4},
       {"F0.0", "B2.3"},
       {"I0.0"}},
      {{"v", "gpt2", {{"pp", 2}, {"tp", 2}}, "pipeline2 sequence", "dualpipe-v", 8, 4}, {}, {}},
      {{"zb-v", "gpt2", {{"pp", 2}}, "pipeline2", "zb-v", 4, 4}, {"F0.0", "I3.0", "W0.3"}, {}},
  };
  return all;
}

// Machines on which compute, latency or bandwidth decide.
std::vector<Machine> machines() {
  Machine latency, fast, slow;
  latency.link_latency = 1e-4;
  fast.flops = 1e13;
  fast.memory_bytes = 1e12;
  slow.link_bytes = 1e8;
  return {Machine(), latency, fast, slow};
}

TEST(Picture, colours_what_is_busy_to_two_points_in_each_lane) {
  double worst = 0;
  for (const Case& each : cases()) {
    const std::vector<Program>& programs = programs_of(each.combination);
    for (const Machine& machine : machines()) {
      const Simulation simulation = simulate(programs, machine);
      const std::string svg = svg_of(blocks_of(programs, simulation), in_unit_for(simulation.seconds));
      const std::vector<double> coloured = coloured_shares(svg), busy = busy_shares(programs, simulation);
      ASSERT_EQ(coloured.size(), busy.size()) << each.combination.name;
      for (size_t i = 0; i < busy.size(); ++i) {
        EXPECT_NEAR(coloured[i], busy[i], 0.02) << each.combination.name << ", lane " << i;
        worst = std::max(worst, std::abs(coloured[i] - busy[i]));
      }
      EXPECT_LT(svg.size(), 300u << 10) << each.combination.name;
    }
  }
  printf("coloured and busy share of a lane differ by %.2f points at most\n", 100 * worst);
}

TEST(Picture, names_blocks_as_a_schedule_does_and_numbers_microbatches_where_there_are_several) {
  for (const Case& each : cases()) {
    const std::vector<Program>& programs = programs_of(each.combination);
    const std::vector<Span> blocks = blocks_of(programs, simulate(programs, Machine()));
    const auto has = [&](const std::string& label) {
      return std::ranges::any_of(blocks, [&](const Span& span) { return span.label == label; });
    };
    for (const std::string& label : each.labels)
      EXPECT_TRUE(has(label)) << each.combination.name << " " << label;
    for (const std::string& label : each.never)
      EXPECT_FALSE(has(label)) << each.combination.name << " " << label;
    const bool numbers = std::ranges::any_of(blocks, [](const Span& span) { return span.microbatch >= 0; });
    EXPECT_EQ(numbers, each.combination.microbatches > 1) << each.combination.name;
    for (const Span& span : blocks) EXPECT_NE(colour_of(span.category), colour_of("other")) << span.category;
  }
}

// A deep pipeline with many microbatches: instructions would be megabytes.
TEST(Picture, of_a_deep_pipeline_stays_small) {
  Json recipe = recipe_of({"deep", "llama", {{"pp", 16}, {"tp", 2}}, "pipeline sequence", "1f1b", 32, 32},
                          "none", false);
  recipe["batch"] = 32;
  const std::vector<Program> programs = compile_document(recipe, 32).programs;
  const Simulation simulation = simulate(programs, Machine());
  const std::string svg = svg_of(blocks_of(programs, simulation), in_unit_for(simulation.seconds));
  EXPECT_LT(svg.size(), 300u << 10);
  const std::vector<double> coloured = coloured_shares(svg), busy = busy_shares(programs, simulation);
  ASSERT_EQ(coloured.size(), busy.size());
  for (size_t i = 0; i < busy.size(); ++i) EXPECT_NEAR(coloured[i], busy[i], 0.02) << "lane " << i;
}

}  // namespace
}  // namespace tenon::test
