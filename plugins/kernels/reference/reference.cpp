// kernels/reference: every op as plain loops in double, the judge of every other kernel.
#include <cstdlib>
#include <cstring>
#include <memory>

#include "host_memory.h"
#include "op.h"
#include "tenon/kernels.h"
#include "tenon/plugin.h"
#include "tenon_sdk/plugin.hpp"

using namespace tenon;
using namespace tenon::kernels;

struct tenon_device {};

struct tenon_kernel {
  Problem problem;
  reference::Run run;
};

namespace {

const reference::Entry* find_entry(std::string_view kind) {
  using Group = std::span<const reference::Entry> (*)();
  constexpr Group kGroups[] = {reference::embedding_ops,   reference::norm_ops,
                               reference::linear_ops,      reference::attention_ops,
                               reference::elementwise_ops, reference::dropout_ops,
                               reference::loss_ops,        reference::shape_ops,
                               reference::routing_ops,     reference::grouped_linear_ops,
                               reference::shard_ops};
  for (Group group : kGroups) {
    for (const reference::Entry& entry : group()) {
      if (kind == entry.kind) return &entry;
    }
  }
  return nullptr;
}

struct Choice {
  reference::Run run = nullptr;
  uint64_t workspace_bytes = 0;
};

// The check of the signature has let only these dtypes through.
Choice choose(const Problem& problem) {
  const reference::Entry* entry = find_entry(problem.kind());
  Choice choice;
  if (entry != nullptr) {
    switch (problem.dtype()) {
      case TENON_F32: choice.run = entry->f32; break;
      case TENON_F64: choice.run = entry->f64; break;
      case TENON_I64: choice.run = entry->i64; break;
      default: choice.run = entry->i32; break;
    }
    if (entry->workspace != nullptr) {
      choice.workspace_bytes = static_cast<uint64_t>(entry->workspace(problem)) * sizeof(double);
    }
  }
  if (choice.run == nullptr) {
    throw sdk::Failure(TENON_E_UNSUPPORTED,
                       std::string(problem.kind()) + ": no kernel for dtype " + dtype_name(problem.dtype()));
  }
  return choice;
}

tenon_code open(int32_t device_id, const tenon_option*, uint32_t, tenon_device** out, tenon_error* error) {
  return sdk::guard(error, [&] {
    if (device_id != 0) {
      throw sdk::Failure(TENON_E_ARGUMENT, "kernels/reference: CPU device " + std::to_string(device_id) +
                                               " does not exist, only 0");
    }
    *out = new tenon_device;
  });
}

void close(tenon_device* device) { delete device; }

tenon_code describe(const tenon_kernel_desc* desc, const char*, tenon_kernel_info* info, tenon_error* error) {
  return sdk::guard(error, [&] {
    const Choice choice = choose(Problem(*desc));
    *info = {.struct_size = sizeof *info,
             .flags = TENON_KERNEL_EXACT,
             .workspace_bytes = choice.workspace_bytes,
             .private_bytes = 0,
             .seconds = 0};
  });
}

tenon_code prepare(tenon_device*, const tenon_kernel_desc* desc, tenon_kernel** out, tenon_error* error) {
  return sdk::guard(error, [&] {
    Problem problem(*desc);
    const reference::Run run = choose(problem).run;
    *out = new tenon_kernel{std::move(problem), run};
  });
}

void release(tenon_kernel* kernel) { delete kernel; }

tenon_code enqueue(tenon_kernel* kernel, const tenon_stream*, void* const* pointers, tenon_error* error) {
  return sdk::guard(error, [&] { kernel->run(reference::Call{kernel->problem, pointers}); });
}

tenon_code alloc(tenon_device*, uint64_t bytes, void** out, tenon_error* error) {
  return sdk::guard(error, [&] { *out = host_alloc(bytes); });
}

void free_block(tenon_device*, void* pointer) { std::free(pointer); }

tenon_code copy(tenon_device*, void* dst, const void* src, uint64_t bytes, const tenon_stream*,
                tenon_error*) {
  if (bytes != 0) std::memcpy(dst, src, bytes);
  return TENON_OK;
}

constexpr tenon_kernels kTable = {
    .struct_size = sizeof(tenon_kernels),
    .device_type = kDLCPU,
    .open = open,
    .close = close,
    .describe = describe,
    .prepare = prepare,
    .release = release,
    .enqueue = enqueue,
    .alloc = alloc,
    .free = free_block,
    .copy = copy,
    .stream_create = nullptr,
    .stream_destroy = nullptr,
    .event_create = nullptr,
    .event_destroy = nullptr,
    .event_record = nullptr,
    .event_wait_stream = nullptr,
    .event_wait_host = nullptr,
    .event_query = nullptr,
};

const void* get_interface(const char* id) { return std::strcmp(id, TENON_KERNELS) == 0 ? &kTable : nullptr; }

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = {
    .struct_size = sizeof(tenon_plugin),
    .abi_major = TENON_ABI_MAJOR,
    .abi_minor_built = TENON_ABI_MINOR,
    .abi_minor_required = TENON_ABI_MINOR,
    .id = "kernels/reference",
    .version = "0.1.0",
    .doc = "Every op as plain loops in double precision on one thread: the judge of other kernels",
    .options = nullptr,
    .num_options = 0,
    .init = [](const tenon_host*, tenon_error*) -> tenon_code { return TENON_OK; },
    .deinit = [] {},
    .get_interface = get_interface,
};
