// What plugins declare of themselves when they are asked (the `describe` of a table): asked once, checked
// once, and copied, so that nothing that a run goes by is a plugin's to change.
//
// Error A005 names the declaration that is wrong, "<id>, describe" being the place: NULL where something must
// be, a count, a size or a name that none is, a name twice, what a checkpoint could not hold, an answer that
// differs from the last one, and a plugin that writes behind the struct_size of what it fills.
#pragma once

#include <array>

#include "plan/compile/compile.h"
#include "run/plugin_set.h"

namespace tenon {

struct SlotDeclaration {
  std::string name;
  uint32_t dtype = TENON_SLOT_DTYPE_OF_PARAM;  // or a Dtype
  Dtype dtype_for(Dtype param) const {
    return dtype == TENON_SLOT_DTYPE_OF_PARAM ? param : static_cast<Dtype>(dtype);
  }
  bool operator==(const SlotDeclaration&) const = default;
};

struct OptimizerDeclaration {
  std::vector<SlotDeclaration> slots;
  uint32_t granule = TENON_GRANULE_ELEMENT;
  uint32_t num_stats = 0;
  bool operator==(const OptimizerDeclaration&) const = default;
};
Result<OptimizerDeclaration> describe(const OptimizerUse& use, const tenon_optimizer_state* state);

struct FieldDeclaration {
  std::string name;
  Dtype dtype = Dtype::i32;
  std::vector<int64_t> dims;  // of one sample
  int64_t limit = 0;          // every value is below; 0: no bound

  int64_t bytes() const;  // of one sample
  bool operator==(const FieldDeclaration&) const = default;
};

struct DataDeclaration {
  std::vector<FieldDeclaration> fields;
  int64_t num_samples = 0;
  std::array<uint8_t, 32> digest{};
  bool operator==(const DataDeclaration&) const = default;
};
Result<DataDeclaration> describe(const Plugged<tenon_data>& plugin, tenon_dataset* dataset);

// Of a kernel by which a program is planned.
Result<KernelNeeds> describe(const Plugged<tenon_kernels>& plugin, const tenon_kernel_desc& desc);
// The same by the plugin that runs its kind. What one that was chosen for the kind does not have is a mistake
// of the recipe, whose place is there.
Result<KernelNeeds> describe(const KernelPlugins& plugins, const tenon_kernel_desc& desc);

}  // namespace tenon
