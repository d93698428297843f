#include "plan/show/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "plan/show/spans.h"

namespace tenon {
namespace {

// What the instructions of a program are called in a picture.
class Blocks {
 public:
  explicit Blocks(const Program& program) : program_(program) {
    struct Gradients {
      int weights = 0, weights_before_inputs = 0;  // instructions; before the last one for an input
    };
    std::map<Key, Gradients> gradients;
    for (const Instr& instr : program.instrs) {
      if (instr.lane != 0) continue;
      stages_.insert(instr.stage);
      Gradients& of = gradients[key_of(instr)];
      if (instr.phase == Phase::weight_grad) ++of.weights;
      if (instr.phase == Phase::input_grad) of.weights_before_inputs = of.weights;
    }
    for (const auto& [key, of] : gradients) {
      if (2 * of.weights_before_inputs > of.weights) taking_turns_.insert(key);
    }
  }

  // Where its lane is among those of a picture: work, the pipeline, other axes.
  uint32_t lane_of(const Instr& instr) const {
    return instr.lane == 0 ? 0 : crosses(instr) ? 1 : 1 + instr.lane;
  }

  Span span_of(const Instr& instr) const {
    Span out;
    out.rank = static_cast<int>(program_.class_index);
    out.lane = crosses(instr) ? program_.mesh.axes[program_.pipeline_axis].name : program_.lanes[instr.lane];
    if (instr.lane != 0) {
      out.label = out.category = instr.kind;
      return out;
    }
    const bool backward = is_gradient(instr.phase) && taking_turns_.contains(key_of(instr));
    out.category = backward ? "backward" : category_of(instr.phase);
    if (program_.microbatches > 1) out.microbatch = instr.microbatch;
    out.shade = static_cast<int>(std::distance(stages_.begin(), stages_.find(instr.stage)));
    out.label = label_of(instr, backward ? "B" : name_of(instr.phase));
    return out;
  }

 private:
  using Key = std::tuple<int, int, int>;
  static bool is_gradient(Phase phase) { return phase == Phase::input_grad || phase == Phase::weight_grad; }
  // A transfer to other places on the pipeline, whatever lane of the executor it has.
  bool crosses(const Instr& instr) const {
    return instr.lane != 0 && std::ranges::count(instr.axes, program_.pipeline_axis) > 0;
  }
  bool by_layer() const { return program_.pipeline_axis == kNone && program_.microbatches == 1; }
  Key key_of(const Instr& instr) const {
    return {instr.stage, instr.microbatch, by_layer() ? instr.layer : -1};
  }

  std::string label_of(const Instr& instr, const std::string& phase) const {
    if (instr.phase == Phase::step || instr.microbatch < 0) return instr.phase == Phase::step ? "update" : "";
    if (by_layer()) return instr.layer < 0 ? "" : fmt::format("layer {}", instr.layer);
    if (program_.pipeline_axis == kNone) return fmt::format("{}{}", phase, instr.microbatch);
    return fmt::format("{}{}.{}", phase, instr.stage, instr.microbatch);
  }

  const Program& program_;
  std::set<int> stages_;        // of this program
  std::set<Key> taking_turns_;  // whose input and weight gradients alternate
};

template <class LaneOf>
std::vector<SimulatedInstr> sorted(std::vector<SimulatedInstr> instrs, LaneOf lane_of) {
  std::ranges::stable_sort(instrs, {}, [&](const SimulatedInstr& at) {
    return std::tuple(at.program, lane_of(at.program, at.id), at.start);
  });
  return instrs;
}

}  // namespace

std::vector<Span> instrs_of(const std::vector<Program>& programs, const Simulation& simulation) {
  const auto lane_of = [&](size_t program, InstrId id) { return programs[program].instrs[id].lane; };
  std::vector<Span> out;
  for (const SimulatedInstr& at : sorted(simulation.instrs, lane_of)) {
    const Program& program = programs[at.program];
    out.push_back(span_of(program, at.id, static_cast<int>(program.class_index)));
    out.back().start = at.start;
    out.back().end = at.end;
  }
  return out;
}

std::vector<Span> blocks_of(const std::vector<Program>& programs, const Simulation& simulation) {
  const std::vector<Blocks> blocks(programs.begin(), programs.end());
  const auto lane_of = [&](size_t program, InstrId id) {
    return blocks[program].lane_of(programs[program].instrs[id]);
  };
  std::vector<Span> out;
  for (const SimulatedInstr& at : sorted(simulation.instrs, lane_of)) {
    out.push_back(blocks[at.program].span_of(programs[at.program].instrs[at.id]));
    out.back().start = at.start;
    out.back().end = at.end;
  }
  return out;
}

}  // namespace tenon
