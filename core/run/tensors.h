// What a rank holds of the model and of the optimizer's state, and where.
#pragma once

#include <string>
#include <vector>

#include "run/checkpoint/geometry.h"
#include "run/device.h"

namespace tenon {

class Tensors {
 public:
  // Of the program that fixes which rank holds what; both are borrowed.
  Tensors(const Program& layout, const RankDevice& device) : layout_(layout), device_(device) {}

  const Program& layout() const { return layout_; }
  const std::vector<TensorInfo>& params() const { return layout_.params; }
  const std::vector<TensorInfo>& states() const { return layout_.states; }
  // A parameter's or state tensor's description; NULL when this rank holds none of that name.
  const TensorInfo* find(const std::string& name) const;
  // What this rank holds of one, and where that is.
  Held held(const TensorInfo& tensor) const { return held_by(layout_, tensor, device_.id().rank); }
  char* data(const TensorInfo& tensor) const;
  // Which elements of the whole tensor those are.
  checkpoint::Slice slice(const TensorInfo& tensor) const;
  // Whether this rank speaks for its part of one of its params() or states(): one of the ranks that hold the
  // same part does.
  bool speaks_for(const TensorInfo& tensor) const;

  // Fills the parameters with the numbers that the recipe's seed gives, whatever the placement.
  void initialise(uint64_t seed) const;

 private:
  int64_t index_of(const TensorInfo& tensor) const;  // among parameters, then states

  const Program& layout_;
  const RankDevice& device_;
};

// This rank's part of a parameter's gradient as the last step left it: summed over tokens and ranks, not
// scaled. Elements [first, first + count) of the parameter local to the rank. Valid until the next step,
// evaluation or logits. NULL, 0 where nothing is held.
struct GradientPart {
  const char* data = nullptr;
  int64_t first = 0, count = 0;
};
GradientPart gradient_of(const Program& train, const RankDevice& device, const std::string& param);

}  // namespace tenon
