// What an optimizer did with what it was given: a look before a call, and one behind it. It reads all that
// the call may write twice, which is less than the call itself does.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "run/declarations.h"
#include "tenon/optimizer.h"

namespace tenon {

class UpdateWatch {
 public:
  // Of a call of the optimizer with this piece among others, whose pointers and name stay valid. Parameters
  // and slots are of the host's memory.
  void add(const tenon_update& piece, const OptimizerDeclaration& declaration);

  // In front of a call of `step`, and behind it.
  void before_step(const tenon_step_scalars& scalars);
  // Error N002 where an element was a number, and its gradient, and is none any more.
  Status after_step();
  // Whether some element's update could not be missed: its gradient and the learning rate make more of it
  // than its last bits hold, however a rule scales either. Of the last call.
  bool must_move() const { return must_move_; }
  // Whether a bit of the parameters or of the slots differed behind the last call.
  bool moved() const { return moved_; }

  // In front of a call of `stats`, which is to write all of them, and behind it: error N002 where it has not.
  void before_stats();
  Status after_stats() const;

 private:
  struct Look {  // at an element of a parameter
    const char* param = nullptr;
    const char* grad = nullptr;
    Dtype dtype = Dtype::f32;
    const char* name = nullptr;
    uint64_t index = 0;
    bool is_number = false;  // the element, and its gradient, before the call
  };
  struct Stat {
    double* at = nullptr;
    const char* name = nullptr;
  };
  void add_held(const void* base, Dtype dtype, uint64_t count);
  uint64_t digest() const;  // of all that is held

  std::vector<std::span<const std::byte>> held_;  // parameters and slots
  uint64_t before_ = 0;
  std::vector<Look> looks_;
  std::vector<Stat> stats_;
  bool must_move_ = false;
  bool moved_ = false;
};

// N002: the calls of a step together, of which one must have moved something, moved nothing.
Error nothing_moved(int64_t step, double lr);

}  // namespace tenon
