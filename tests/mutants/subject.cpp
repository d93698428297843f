#include "subject.h"

#include <fmt/format.h>

#include "feeding.h"
#include "run/sampler.h"
#include "samples.h"

namespace tenon::mutants {
namespace {

constexpr uint64_t kSmallBuckets = 2048;  // bytes: several buckets

template <class T>
T value_or_throw(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().text());
  return std::move(result).value();
}

std::shared_ptr<const Programs> compile_all(const Recipe& recipe, const PluginSet& plugins) {
  const Mesh mesh = value_or_throw(resolve_mesh(recipe.mesh, recipe.mesh.world()));
  CompileOptions options = value_or_throw(compile_options(recipe, plugins, mesh));
  options.bucket_bytes = kSmallBuckets;
  const auto out = std::make_shared<Programs>();
  out->train = value_or_throw(compile(recipe, ProgramKind::train, options));
  out->eval = value_or_throw(compile(recipe, ProgramKind::eval, options));
  out->logits = value_or_throw(compile(recipe, ProgramKind::logits, options));
  return out;
}

}  // namespace

const char* name_of(Part part) {
  constexpr const char* kNames[] = {"train", "eval", "logits"};
  return kNames[static_cast<size_t>(part)];
}

const Compiled& Subject::compiled(Part part) const {
  return part == Part::train ? *programs_->train : part == Part::eval ? programs_->eval : programs_->logits;
}

Subject::Subject(std::string name, Json document)
    : name_(std::move(name)),
      document_(std::move(document)),
      registry_(std::make_unique<PluginRegistry>(test::test_registry())),
      recipe_(value_or_throw(read_recipe(document_))),
      plugins_(value_or_throw(load_plugins(*registry_, recipe_))),
      programs_(compile_all(recipe_, plugins_)),
      mesh_(programs_->train->programs.front().mesh),
      kernels_(std::make_unique<Kernels>(*plugins_.kernels.base().table, recipe_.exact)),
      optimizer_(std::make_unique<Optimizer>(plugins_.optimizer)),
      machine_(Machine{mesh_, *kernels_, *optimizer_}) {
  const Sampler sampler = value_or_throw(Sampler::create(kNumSamples, recipe_.valid, recipe_.seed));
  for (int64_t i = 0; i < recipe_.batch; ++i) {
    for (int64_t s = 0; s < kSteps; ++s) batches_[s].push_back(sampler.train(s * recipe_.batch + i));
    valid_.push_back(sampler.valid(i));
  }
  const auto& trained = compiled(Part::train).programs;
  trained_ = allocate(trained, programs_->eval.programs);
  train(trained, Completion::at_first_wait, 0, *trained_, expected_[0]);
  checkpoint_ = save_all(trained, *trained_);
  Memory memory = *trained_;
  evaluate(programs_->eval.programs, Completion::at_first_wait, 0, memory, expected_[0]);
  for (Part part : {Part::eval, Part::logits})
    run(part, compiled(part).programs, Completion::at_first_wait, 0, expected_[static_cast<size_t>(part)]);
}

void Subject::run(Part part, const std::vector<Program>& programs, Completion completion, uint64_t seed,
                  Record& record) {
  const auto& eval = part == Part::eval ? programs : programs_->eval.programs;
  if (part == Part::train) {
    Memory memory = allocate(programs, eval);
    train(programs, completion, seed, memory, record);
    evaluate(eval, completion, seed, memory, record);
    record.end();
    return;
  }
  Memory memory = *trained_;
  if (part == Part::logits) {
    sample_logits(programs, completion, seed, memory, record);
    record.end();
    return;
  }
  evaluate(eval, completion, seed, memory, record);
  // Without a program of training, that of evaluation says where parameters are.
  Memory alone = allocate(eval, eval);
  for (size_t rank = 0; rank < alone.size(); ++rank)
    initialise(program_of(eval, static_cast<int64_t>(rank)), mesh_, static_cast<int64_t>(rank), recipe_.seed,
               alone[rank]);
  for (const auto& [name, values] : save_all(eval, alone)) record.add("initial " + name, values);
  for (size_t rank = 0; rank < alone.size(); ++rank)
    load(program_of(eval, static_cast<int64_t>(rank)), mesh_, static_cast<int64_t>(rank), alone[rank],
         checkpoint_);
  for (const auto& [name, values] : save_all(eval, alone)) record.add("loaded " + name, values);
  evaluate(eval, completion, seed, alone, record);
  record.end();
}

Subject::Memory Subject::allocate(const std::vector<Program>& layout,
                                  const std::vector<Program>& eval) const {
  Memory out;
  for (int64_t rank = 0; rank < mesh_.world(); ++rank) {
    SpaceBytes bytes{};
    for (const Program* program : {&program_of(layout, rank), &program_of(eval, rank),
                                   &program_of(programs_->logits.programs, rank)}) {
      for (size_t i = 0; i < kNumSpaces; ++i) bytes[i] = std::max(bytes[i], program->space_bytes[i]);
    }
    out.emplace_back(bytes);
  }
  return out;
}

void Subject::feed(const std::vector<Program>& programs, const std::vector<int64_t>& batch, int64_t step,
                   Memory& memory) const {
  for (int64_t rank = 0; rank < mesh_.world(); ++rank)
    fill_inputs(program_of(programs, rank), rank, batch, step, memory[static_cast<size_t>(rank)]);
}

Wholes Subject::save_all(const std::vector<Program>& programs, Memory& memory) const {
  Wholes out;
  for (int64_t rank = 0; rank < mesh_.world(); ++rank)
    save(program_of(programs, rank), mesh_, rank, memory[static_cast<size_t>(rank)], out);
  return out;
}

void Subject::step(const std::vector<Program>& programs, Interpreter& interpreter, int64_t step,
                   Completion completion, uint64_t seed, Memory& memory, Record& record) {
  for (RankMemory& rank : memory) rank.poison_arena();
  const bool training = step <= kSteps;
  feed(programs, training ? batches_[step - 1] : valid_, step, memory);
  interpreter.run({training ? step : kSteps, training ? recipe_.lr.at(step) : 0}, completion, seed);
  for (int64_t rank = 0; rank < mesh_.world(); ++rank) {
    const Program& mine = program_of(programs, rank);
    for (const char* name : {"loss", "count", "norm", "scale"}) {
      if (!training && mine.outputs.count(name) == 0 &&
          compiled(Part::eval).of(rank).outputs.count(name) == 0)
        continue;
      record.add(fmt::format("step {} {} on rank {}", step, name, rank),
                 {read_output(mine, name, memory[static_cast<size_t>(rank)])});
    }
  }
}

void Subject::train(const std::vector<Program>& programs, Completion completion, uint64_t seed,
                    Memory& memory, Record& record) {
  for (int64_t rank = 0; rank < mesh_.world(); ++rank)
    initialise(program_of(programs, rank), mesh_, rank, recipe_.seed, memory[static_cast<size_t>(rank)]);
  for (const auto& [name, values] : save_all(programs, memory)) record.add("initial " + name, values);
  Interpreter interpreter(*machine_, programs, memory);
  for (int64_t now = 1; now <= kSteps; ++now) {
    step(programs, interpreter, now, completion, seed + static_cast<uint64_t>(now), memory, record);
    Wholes gradients;
    for (int64_t rank = 0; rank < mesh_.world(); ++rank)
      collect_gradients(program_of(programs, rank), mesh_, rank, memory[static_cast<size_t>(rank)],
                        gradients);
    for (const auto& [name, values] : gradients)
      record.add(fmt::format("step {} gradient of {}", now, name), values);
  }
  const Wholes saved = save_all(programs, memory);
  for (const auto& [name, values] : saved) record.add("final " + name, values);
  for (int64_t rank = 0; rank < mesh_.world(); ++rank) {
    for (const auto& [name, values] :
         held(program_of(programs, rank), rank, memory[static_cast<size_t>(rank)]))
      record.add(fmt::format("final {} on rank {}", name, rank), values);
  }
  if (checkpoint_.empty()) return;  // the sound training is under way
  Memory resumed = memory;
  for (int64_t rank = 0; rank < mesh_.world(); ++rank)
    load(program_of(programs, rank), mesh_, rank, resumed[static_cast<size_t>(rank)], checkpoint_);
}

void Subject::evaluate(const std::vector<Program>& programs, Completion completion, uint64_t seed,
                       Memory& memory, Record& record) {
  Interpreter interpreter(*machine_, programs, memory);
  step(programs, interpreter, kSteps + 1, completion, seed, memory, record);
}

void Subject::sample_logits(const std::vector<Program>& programs, Completion completion, uint64_t seed,
                            Memory& memory, Record& record) {
  Interpreter interpreter(*machine_, programs, memory);
  for (int64_t rank = 0; rank < mesh_.world(); ++rank) {
    memory[static_cast<size_t>(rank)].poison_arena();
    fill_prompt(program_of(programs, rank), rank, sample(0).tokens, kSteps + 1,
                memory[static_cast<size_t>(rank)]);
  }
  interpreter.run({kSteps, 0}, completion, seed);
  for (int64_t rank = 0; rank < mesh_.world(); ++rank)
    record.add(fmt::format("logits on rank {}", rank),
               read_logits(program_of(programs, rank), memory[static_cast<size_t>(rank)]));
}

}  // namespace tenon::mutants
