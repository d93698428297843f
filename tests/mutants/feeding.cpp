#include "feeding.h"

#include <algorithm>
#include <cstring>

#include "run/sampler.h"
#include "samples.h"

namespace tenon::mutants {
namespace {

// What all inputs need; `needed` are those that are written without a look.
void check(const Program& program, std::initializer_list<const char*> needed) {
  for (const auto* axes : {&program.batch_axes, &program.seq_axes}) {
    for (AxisId axis : *axes) require(axis < program.mesh.axes.size(), "inputs are cut over no axis");
  }
  require(!program.inputs.empty(), "there are no inputs");
  for (const auto& set : program.inputs) {
    for (const char* name : needed) require(set.count(name) > 0, "an input is missing");
  }
  const auto tokens = program.inputs[0].find("tokens");
  require(tokens != program.inputs[0].end() && tokens->second.dims.size() == 2 &&
              tokens->second.dims[0] >= 0 && tokens->second.dims[1] >= 0,
          "tokens are no matrix");
}

// Writes values one behind the other where an input is.
class Writer {
 public:
  Writer(const Program& program, const std::map<std::string, Operand>& inputs, const char* name,
         uint64_t bytes, RankMemory& memory) {
    const auto found = inputs.find(name);
    if (found == inputs.end()) return;
    at_ = memory.at(program, found->second.buffer, found->second.offset, bytes);
  }
  template <class T>
  void put(T value) {
    if (at_ == nullptr) return;
    std::memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
  }

 private:
  char* at_ = nullptr;
};

std::vector<TokenRange> ranges_of(const Program& program, int64_t rank) {
  std::vector<TokenRange> ranges = tokens_of(program, rank);
  for (const TokenRange& range : ranges)
    require(range.first >= 0 && range.count >= 0 && range.first + range.count <= kContext,
            "more tokens than a sample has");
  return ranges;
}

uint64_t count(const std::vector<TokenRange>& ranges) {
  uint64_t out = 0;
  for (const TokenRange& range : ranges) out += static_cast<uint64_t>(range.count);
  return out;
}

}  // namespace

void fill_inputs(const Program& program, int64_t rank, const std::vector<int64_t>& batch, int64_t step,
                 RankMemory& memory) {
  check(program, {"targets", "positions", "samples", "step"});
  const std::vector<TokenRange> ranges = ranges_of(program, rank);
  const uint64_t tokens = count(ranges);
  require(program.microbatches >= 0 && program.microbatches <= static_cast<int64_t>(program.inputs.size()),
          "a microbatch has no inputs");
  for (int64_t microbatch = 0; microbatch < program.microbatches; ++microbatch) {
    const BatchSlice slice = slice_batch(program, rank, microbatch);
    require(slice.first >= 0 && slice.first + slice.count <= static_cast<int64_t>(batch.size()),
            "more samples than a batch has");
    const auto& inputs = program.inputs[static_cast<size_t>(microbatch)];
    const uint64_t all = static_cast<uint64_t>(slice.count) * tokens;
    Writer ids(program, inputs, "tokens", all * 4, memory);
    Writer targets(program, inputs, "targets", all * 4, memory);
    Writer positions(program, inputs, "positions", all * 4, memory);
    Writer samples(program, inputs, "samples", static_cast<uint64_t>(slice.count) * 8, memory);
    Writer(program, inputs, "step", 8, memory).put(step);
    for (int64_t i = slice.first; i < slice.first + slice.count; ++i) {
      const int64_t number = batch[static_cast<size_t>(i)];
      const Sample& one = sample(std::max<int64_t>(number, 0));
      samples.put(number);
      for (const TokenRange& range : ranges) {
        for (int64_t at = range.first; at < range.first + range.count; ++at) {
          ids.put(one.tokens[static_cast<size_t>(at)]);
          targets.put(number < 0 ? -1 : one.targets[static_cast<size_t>(at)]);
          positions.put(static_cast<int32_t>(at));
        }
      }
    }
  }
}

void fill_prompt(const Program& program, int64_t rank, const std::vector<int32_t>& prompt, int64_t step,
                 RankMemory& memory) {
  check(program, {"tokens", "targets", "positions", "samples", "step"});
  const std::vector<TokenRange> ranges = ranges_of(program, rank);
  const auto& inputs = program.inputs[0];
  Writer ids(program, inputs, "tokens", count(ranges) * 4, memory);
  Writer targets(program, inputs, "targets", count(ranges) * 4, memory);
  Writer positions(program, inputs, "positions", count(ranges) * 4, memory);
  Writer(program, inputs, "samples", 8, memory).put(int64_t{-1});
  Writer(program, inputs, "step", 8, memory).put(step);
  for (const TokenRange& range : ranges) {
    for (int64_t at = range.first; at < range.first + range.count; ++at) {
      ids.put(prompt[static_cast<size_t>(at)]);
      targets.put(int32_t{-1});
      positions.put(static_cast<int32_t>(at));
    }
  }
}

std::vector<double> read_logits(const Program& program, RankMemory& memory) {
  const auto found = program.outputs.find("logits");
  require(found != program.outputs.end() && !found->second.dims.empty(), "there are no logits");
  const Operand& logits = found->second;
  require(logits.dtype == Dtype::f64, "logits of another dtype");
  const int64_t vocabulary = logits.dims.back();
  std::vector<double> out;
  for (int64_t position = 0; position < kContext; ++position) {
    const auto row = static_cast<uint64_t>(gathered_position(program, position) * vocabulary) * 8;
    const char* at =
        memory.at(program, logits.buffer, logits.offset + row, static_cast<uint64_t>(vocabulary) * 8);
    const size_t before = out.size();
    out.resize(before + static_cast<size_t>(vocabulary));
    std::memcpy(out.data() + before, at, static_cast<size_t>(vocabulary) * 8);
  }
  return out;
}

double read_output(const Program& program, const std::string& name, RankMemory& memory) {
  const auto found = program.outputs.find(name);
  require(found != program.outputs.end(), "an output is missing");
  const char* at = memory.at(program, found->second.buffer, found->second.offset, 8);
  if (found->second.dtype == Dtype::i64) {
    int64_t out;
    std::memcpy(&out, at, 8);
    return static_cast<double>(out);
  }
  double out;
  std::memcpy(&out, at, 8);
  return out;
}

}  // namespace tenon::mutants
