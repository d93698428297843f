// Kernels of a plugin, each prepared once.
#pragma once

#include <string>
#include <unordered_map>

#include "rank_memory.h"
#include "run/handle.h"
#include "tenon/kernels.h"

namespace tenon::mutants {

// Kernels and update rules run at once, on the host.
constexpr tenon_stream kStream{{kDLCPU, 0}, nullptr};

class Kernels {
 public:
  // `table` is borrowed.
  Kernels(const tenon_kernels& table, bool exact);

  struct Prepared {
    tenon_kernel* kernel = nullptr;
    uint64_t workspace = 0;  // bytes that it needs
  };
  // Refused with the plugin's words where it refuses.
  const Prepared& of(const Instr& instr, int64_t start_shift);
  // `pointers`: inputs, outputs, workspace. Fault where the kernel finds its operands' values wrong.
  void run(tenon_kernel* kernel, void* const* pointers) const;

 private:
  const tenon_kernels& table_;
  const bool exact_;
  Handle<tenon_device> device_;
  std::vector<Handle<tenon_kernel>> owned_;
  std::unordered_map<std::string, Prepared> known_;
};

}  // namespace tenon::mutants
