#include "interpreter.h"

#include "schedule.h"

namespace tenon::mutants {

const char* name_of(Completion completion) {
  constexpr const char* kNames[] = {"at start", "at first wait", "at random"};
  return kNames[static_cast<size_t>(completion)];
}

const Program& program_of(const std::vector<Program>& programs, int64_t rank) {
  require(!programs.empty(), "no program");
  const Program& first = programs.front();
  if (first.pipeline_axis == kNone) return first;
  require(first.pipeline_axis < first.mesh.axes.size(), "the pipeline is over no axis");
  const auto at = static_cast<size_t>(first.mesh.coordinate(rank)[first.pipeline_axis]);
  require(at < programs.size(), "a rank has no program");
  return programs[at];
}

Interpreter::Interpreter(const Machine& machine, const std::vector<Program>& programs,
                         std::vector<RankMemory>& memory)
    : machine_(machine) {
  for (int64_t rank = 0; rank < machine.mesh.world(); ++rank)
    ranks_.push_back(
        prepare(machine, program_of(programs, rank), rank, memory[static_cast<size_t>(rank)], channels_));
}

void Interpreter::run(const Scalars& scalars, Completion completion, uint64_t seed) {
  Schedule schedule(ranks_, channels_, [&](size_t rank, const Work& work) {
    RankWork& all = ranks_[rank];
    for (uint32_t c = 0; c < work.num_calls; ++c) {
      const RankWork::Call& call = all.calls[work.first_call + c];
      machine_.kernels.run(call.kernel, all.pointers.data() + call.first_pointer);
    }
    for (uint32_t u = 0; u < work.num_updates; ++u) {
      Update& update = all.updates[work.first_update + u];
      const auto scale = *reinterpret_cast<const double*>(update.scale);
      machine_.optimizer.step(update.group, update.measures, update.pieces,
                              {sizeof(tenon_step_scalars), 0, scalars.step, scalars.lr, scale});
    }
  });
  schedule.run(completion, seed);
}

}  // namespace tenon::mutants
