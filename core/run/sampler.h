// Which sample stands where: shuffle, split and slicing over ranks, as pure functions of a position.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "plan/program/program.h"
#include "run/declarations.h"
#include "run/handle.h"
#include "run/plugin_set.h"
#include "run/programs.h"
#include "run/staging.h"

namespace tenon {

// D004, to who wants to evaluate.
Error nothing_held_out();

// Training samples are the first of the data, each epoch in a new order; validation samples
// are the tail, in their own order. A position counts samples since the start of training.
class Sampler {
 public:
  // Error D001 when the split leaves too few samples.
  static Result<Sampler> create(int64_t num_samples, double valid, uint64_t seed);
  int64_t num_valid() const { return num_samples_ - num_train_; }
  int64_t train(int64_t position) const;  // global sample index
  int64_t valid(int64_t position) const;  // -1 behind the end: a sample that is all padding

 private:
  int64_t num_samples_ = 0, num_train_ = 0;
  uint64_t seed_ = 0;
};

// Tokens [first, first + count) of each sample.
struct TokenRange {
  int64_t first = 0, count = 0;
};
// What a rank holds of each sequence when ranks share it: of 2n equal parts, one from the front and its
// mirror from the back, so that causal attention gives all n ranks the same work. In the order in which the
// rank holds them.
std::vector<TokenRange> tokens_of(const Program& program, int64_t rank);
// Where token `position` of a sequence is in the concatenation of what all ranks hold of it.
int64_t gathered_position(const Program& program, int64_t position);

// One rank's view of the data: opens it, and fills the inputs of programs.
class Feeder {
 public:
  // Errors: what the plugin says; D002 when its fields do not fit the model's inputs, or one is of an input
  // that the core fills itself.
  static Result<std::unique_ptr<Feeder>> open(const Plugged<tenon_data>& plugin, const std::string& root,
                                              int64_t context);

  int64_t num_samples() const { return declared_.num_samples; }
  int64_t token_limit() const;  // that the plugin declared; 0: none
  // Takes memory for `samples` at once, and knows what the model can do with. Before the first fill().
  // Errors: A005 a field that is too large for that many, E010.
  Status expect(const TokenLimits& limits, int64_t samples);
  std::string digest() const;  // hex
  // Text to tokens and back, behind expect(). Errors: D006 where the plugin does neither, D007, what it says.
  Result<std::vector<int32_t>> encode(const std::string& text) const;
  Result<std::string> decode(const std::vector<int32_t>& tokens) const;

  // Reads samples `indices` (those of one microbatch on this rank; -1: padding) into the inputs, whose
  // addresses are given by name; fills positions and sample numbers too. Of each sample only `ranges`.
  // Errors: D007 where the plugin wrote something else than it declared, what it says.
  Status fill(const std::vector<int64_t>& indices, const std::vector<TokenRange>& ranges,
              const std::map<std::string, char*>& inputs);

 private:
  explicit Feeder(const Plugged<tenon_data>& plugin) : plugin_(plugin) {}
  Status read(const std::vector<int64_t>& indices);
  Status check_text() const;
  const Plugged<tenon_data>& plugin_;
  Handle<tenon_dataset> dataset_;
  DataDeclaration declared_;
  std::vector<ValueRange> ranges_;  // of values, by field
  int64_t context_ = 0;
  std::vector<StagingBuffer> whole_;  // samples as the plugin wrote them, by field
};

// Positions within a batch of the samples of one microbatch on one rank: ranks, then microbatches,
// are contiguous, so that exact mode's logical shards do not move when the number of ranks changes.
struct BatchSlice {
  int64_t first = 0, count = 0;
};
BatchSlice slice_batch(const Program& program, int64_t rank, int64_t microbatch);

// Samples of the caller's own, borrowed: a whole batch, rows of the recipe's context.
struct GivenBatch {
  const int32_t* tokens = nullptr;
  const int32_t* targets = nullptr;
};
// As Feeder::fill, from the samples of `slice`, whose numbers are their positions within the batch.
void fill_given(const GivenBatch& batch, const BatchSlice& slice, int64_t context,
                const std::vector<TokenRange>& ranges, const std::map<std::string, char*>& inputs);

}  // namespace tenon
