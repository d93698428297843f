// A recipe that mutants are made of: its plugins, its programs, and what a run of these comes to.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "interpreter.h"
#include "plan/compile/compile.h"
#include "record.h"
#include "run/programs.h"
#include "tensors.h"
#include "virtual_run.hpp"

namespace tenon::mutants {

enum class Part : uint8_t { train, eval, logits };
constexpr Part kParts[] = {Part::train, Part::eval, Part::logits};
const char* name_of(Part part);

constexpr int64_t kSteps = 2;

class Subject {
 public:
  // `document`: a recipe over the samples of samples.h. Throws std::runtime_error where it does not compile.
  Subject(std::string name, Json document);

  const std::string& name() const { return name_; }
  const Json& document() const { return document_; }
  const Recipe& recipe() const { return recipe_; }
  const Mesh& mesh() const { return mesh_; }
  const std::shared_ptr<const Programs>& programs() const { return programs_; }
  const Compiled& compiled(Part part) const;

  // What comes out where this part's programs are `programs` instead, and the other's are the compiler's: of
  // training, two steps and an evaluation; of evaluation, one behind the sound training, and one behind a
  // checkpoint of it; of logits, those of a prompt behind the sound training. Fault, Refused; Different as
  // soon as `record` says so.
  void run(Part part, const std::vector<Program>& programs, Completion completion, uint64_t seed,
           Record& record);

  // What the sound programs come to.
  const Record& expected(Part part) const { return expected_[static_cast<size_t>(part)]; }
  bool exact() const { return recipe_.exact; }

 private:
  using Memory = std::vector<RankMemory>;
  Memory allocate(const std::vector<Program>& layout, const std::vector<Program>& eval) const;
  void feed(const std::vector<Program>& programs, const std::vector<int64_t>& batch, int64_t step,
            Memory& memory) const;
  void train(const std::vector<Program>& programs, Completion completion, uint64_t seed, Memory& memory,
             Record& record);
  void evaluate(const std::vector<Program>& programs, Completion completion, uint64_t seed, Memory& memory,
                Record& record);
  void sample_logits(const std::vector<Program>& programs, Completion completion, uint64_t seed,
                     Memory& memory, Record& record);
  void step(const std::vector<Program>& programs, Interpreter& interpreter, int64_t step,
            Completion completion, uint64_t seed, Memory& memory, Record& record);
  Wholes save_all(const std::vector<Program>& programs, Memory& memory) const;

  const std::string name_;
  const Json document_;
  std::unique_ptr<PluginRegistry> registry_;
  Recipe recipe_;
  PluginSet plugins_;
  std::shared_ptr<const Programs> programs_;
  Mesh mesh_;
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<Machine> machine_;
  std::vector<int64_t> batches_[kSteps], valid_;  // of the steps, and of the evaluation
  std::optional<Memory> trained_;                 // behind the sound training
  Wholes checkpoint_;                             // of that
  Record expected_[std::size(kParts)];
};

}  // namespace tenon::mutants
