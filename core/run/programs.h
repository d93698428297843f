// From a recipe and its plugins to the programs of a run.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "plan/compile/compile.h"
#include "run/plugin_set.h"

namespace tenon {

// The programs of a run: those of every rank, or of one.
struct Programs {
  std::optional<Compiled> train;  // of a run that trains
  Compiled eval, logits;

  // Those that fix which rank holds what.
  const Compiled& layout() const { return train ? *train : eval; }
  // One of each kind that there is: layout() first.
  std::vector<const Compiled*> all() const {
    return train ? std::vector{&*train, &eval, &logits} : std::vector{&eval, &logits};
  }
};

// Everything that compile() needs from a recipe's plugins; pure, needs no device. Options are borrowed
// from `plugins`.
// `mesh`: resolved; that of the options has the axes split that strategies want split.
Result<CompileOptions> compile_options(const Recipe& recipe, const PluginSet& plugins, const Mesh& mesh);

// What a rank needs for its programs, which share it: the most that one of them needs, of each space.
struct RankMemory {
  std::array<uint64_t, kNumSpaces> spaces{};  // planned bytes
  uint64_t kernels_private = 0;               // declared by the kernels plugin
  void add(const Program& program);
  uint64_t of(Space space) const { return spaces[static_cast<size_t>(space)]; }
  uint64_t total() const;
};
// Of a rank whose programs are among these.
RankMemory planned_memory(const Programs& programs, int64_t rank);

// Pure as compile(), and with its errors. `rank`: only what this rank runs is proved and kept, as
// Compiler::of_rank() does.
Result<std::shared_ptr<const Programs>> compile_programs(const Recipe& recipe, const PluginSet& plugins,
                                                         int64_t world, bool training,
                                                         std::optional<int64_t> rank = {});

// Below what number the model knows tokens, and targets: the rows of the smallest table that it looks tokens
// up in, and how many logits it has. INT32_MAX where it has neither.
struct TokenLimits {
  int64_t tokens = INT32_MAX, targets = INT32_MAX;
};
TokenLimits token_limits(const Compiled& compiled);
// Error D003 unless every table that the model looks tokens up in has a row for each token below `limit`.
Status check_vocabulary(const Compiled& compiled, int64_t limit);

// Of the whole model, wherever its stages are; what several ranks hold counts once.
int64_t num_parameters(const Compiled& compiled);
int64_t num_tensors(const Compiled& compiled);

}  // namespace tenon
