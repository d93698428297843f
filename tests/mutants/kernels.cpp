#include "kernels.h"

#include "plan/program/kernel_desc.h"

namespace tenon::mutants {
namespace {

constexpr tenon_kernels_config kConfig{.struct_size = sizeof(tenon_kernels_config),
                                       .num_options = 0,
                                       .host = nullptr,
                                       .options = nullptr,
                                       .profile = nullptr,
                                       .device_id = 0,
                                       .reserved = 0};

void check(tenon_code code, const tenon_error& error) {
  if (code < 0) throw Refused(error.message);
}

}  // namespace

Kernels::Kernels(const tenon_kernels& table, bool exact) : table_(table), exact_(exact) {
  tenon_device* device = nullptr;
  tenon_error error = empty_abi_error();
  check(table.open(&kConfig, &device, &error), error);
  device_ = Handle<tenon_device>(device, table.close);
}

const Kernels::Prepared& Kernels::of(const Instr& instr, int64_t start_shift) {
  const std::string key = kernel_key(instr, start_shift);
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  const KernelDesc desc(instr, exact_, start_shift);
  tenon_error error = empty_abi_error();
  tenon_kernel_info info{};
  info.struct_size = sizeof info;
  check(table_.describe(&kConfig, &desc.get(), &info, &error), error);
  tenon_kernel* made = nullptr;
  check(table_.prepare(device_.get(), &desc.get(), &made, &error), error);
  owned_.emplace_back(made, table_.release);
  return known_.emplace(key, Prepared{made, info.workspace_bytes}).first->second;
}

void Kernels::run(tenon_kernel* kernel, void* const* pointers) const {
  tenon_error error = empty_abi_error();
  if (table_.enqueue(kernel, &kStream, pointers, &error) < 0) throw Fault(error.message);
}

}  // namespace tenon::mutants
