// An instruction as a kernels plugin sees it: the storage behind a tenon_kernel_desc.
#pragma once

#include <deque>

#include "plan/program/program.h"
#include "tenon/kernels.h"

namespace tenon {

class KernelDesc {
 public:
  // `start_shift`: added to a slice's start (the coordinate of the rank).
  explicit KernelDesc(const Instr& instr, bool exact, int64_t start_shift = 0);
  KernelDesc(const KernelDesc&) = delete;
  KernelDesc& operator=(const KernelDesc&) = delete;
  const tenon_kernel_desc& get() const { return desc_; }

 private:
  std::vector<tenon_shape> inputs_, outputs_;
  std::vector<tenon_option> attrs_;
  std::string kind_;
  std::deque<std::string> keys_;
  std::vector<std::vector<int64_t>> dims_;
  tenon_kernel_desc desc_{};
};

// Two instructions with equal keys can share one prepared kernel.
std::string kernel_key(const Instr& instr, int64_t start_shift);

}  // namespace tenon
