// kernels/cpu: fast kernels on the threads of the host. Bits depend on values and shapes alone.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "../reference/host_memory.h"
#include "op.h"
#include "tenon/kernels.h"
#include "tenon/plugin.h"
#include "tenon_sdk/plugin.hpp"

using namespace tenon;
using namespace tenon::kernels;

struct tenon_device {
  const cpu::LoopTable& loops;
  const tenon_parallel* pool;
};

struct tenon_kernel {
  const tenon_device& device;
  Problem problem;
  cpu::Run run;
  std::vector<double> state;
};

namespace {

// The host's threads, from init to deinit. The only state outside of devices: the ABI hands the host to
// init() alone.
std::atomic<const tenon_parallel*>& host_pool() {
  static std::atomic<const tenon_parallel*> pool{nullptr};
  return pool;
}

const cpu::Entry* find_entry(std::string_view kind) {
  using Group = std::span<const cpu::Entry> (*)();
  constexpr Group kGroups[] = {cpu::embedding_ops, cpu::norm_ops,        cpu::linear_ops,
                               cpu::attention_ops, cpu::elementwise_ops, cpu::loss_ops,
                               cpu::shape_ops,     cpu::routing_ops,     cpu::grouped_linear_ops,
                               cpu::shard_ops};
  for (Group group : kGroups) {
    for (const cpu::Entry& entry : group()) {
      if (kind == entry.kind) return &entry;
    }
  }
  return nullptr;
}

struct Choice {
  const cpu::Entry* entry;
  cpu::Run run;
};

// The check of the signature has let only these dtypes through.
Choice choose(const Problem& problem) {
  Choice choice{find_entry(problem.kind()), nullptr};
  if (choice.entry != nullptr) {
    switch (problem.dtype()) {
      case TENON_F32: choice.run = choice.entry->f32; break;
      case TENON_F64: choice.run = choice.entry->f64; break;
      case TENON_I64: choice.run = choice.entry->i64; break;
      default: choice.run = choice.entry->i32; break;
    }
  }
  if (choice.run == nullptr) {
    throw sdk::Failure(TENON_E_UNSUPPORTED,
                       std::string(problem.kind()) + ": no kernel for dtype " + dtype_name(problem.dtype()));
  }
  return choice;
}

tenon_code open(int32_t device_id, const tenon_option* options, uint32_t num_options, tenon_device** out,
                tenon_error* error) {
  return sdk::guard(error, [&] {
    if (device_id != 0) {
      throw sdk::Failure(TENON_E_ARGUMENT,
                         "kernels/cpu: CPU device " + std::to_string(device_id) + " does not exist, only 0");
    }
    const std::string isa = sdk::Options(options, num_options).string("isa");
    *out = new tenon_device{cpu::select_loops(isa.c_str()), host_pool()};
  });
}

void close(tenon_device* device) { delete device; }

tenon_code describe(const tenon_kernel_desc* desc, const char*, tenon_kernel_info* info, tenon_error* error) {
  return sdk::guard(error, [&] {
    const Problem problem(*desc);
    const cpu::Entry& entry = *choose(problem).entry;
    const auto bytes = [&](auto get) {
      return get == nullptr ? uint64_t{0} : static_cast<uint64_t>(get(problem));
    };
    const uint64_t state = entry.state == nullptr ? 0 : entry.state(problem).size() * sizeof(double);
    *info = {.struct_size = sizeof *info,
             .flags = TENON_KERNEL_EXACT,
             .workspace_bytes = bytes(entry.workspace),
             .private_bytes = state,
             .seconds = 0};
  });
}

tenon_code prepare(tenon_device* device, const tenon_kernel_desc* desc, tenon_kernel** out,
                   tenon_error* error) {
  return sdk::guard(error, [&] {
    Problem problem(*desc);
    const Choice choice = choose(problem);
    std::vector<double> state;
    if (choice.entry->state != nullptr) state = choice.entry->state(problem);
    *out = new tenon_kernel{*device, std::move(problem), choice.run, std::move(state)};
  });
}

void release(tenon_kernel* kernel) { delete kernel; }

tenon_code enqueue(tenon_kernel* kernel, const tenon_stream*, void* const* pointers, tenon_error* error) {
  return sdk::guard(error, [&] {
    kernel->run({kernel->problem, kernel->device.loops, kernel->device.pool, pointers, kernel->state.data()});
  });
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

constexpr tenon_option_decl kIsa = {
    .struct_size = sizeof(tenon_option_decl),
    .kind = TENON_STRING,
    .name = "isa",
    .doc = "instruction set of the loops; auto: the best that the machine has",
    .fallback = "auto",
    .choices = "auto|avx512|avx2|baseline",
    .min = 1,
    .max = 0,
};
constexpr const tenon_option_decl* kOptions[] = {&kIsa};

tenon_code init(const tenon_host* host, tenon_error*) {
  host_pool() = static_cast<const tenon_parallel*>(host->get_interface(host, TENON_HOST_PARALLEL));
  return TENON_OK;
}

const void* get_interface(const char* id) { return std::strcmp(id, TENON_KERNELS) == 0 ? &kTable : nullptr; }

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = {
    .struct_size = sizeof(tenon_plugin),
    .abi_major = TENON_ABI_MAJOR,
    .abi_minor_built = TENON_ABI_MINOR,
    .abi_minor_required = TENON_ABI_MINOR,
    .id = "kernels/cpu",
    .version = "0.1.0",
    .doc = "Every op on the CPU: oneDNN for matrix products, vector loops for AVX-512, AVX2 or any machine",
    .options = kOptions,
    .num_options = std::size(kOptions),
    .init = init,
    .deinit = [] { host_pool() = nullptr; },
    .get_interface = get_interface,
};
