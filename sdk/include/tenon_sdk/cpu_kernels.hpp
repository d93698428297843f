// tenon_sdk/cpu_kernels.hpp - the table tenon.kernels/1 of a plugin for the CPU, made of a list of ops.
// Header-only.
#pragma once

#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon_sdk/host_memory.hpp"
#include "tenon_sdk/kernel_problem.hpp"

namespace tenon::kernels {

// An op kind, once per dtype of its operands marked float or any; NULL: not for that dtype.
template <class Call>
struct CpuOp {
  using Run = void (*)(const Call&);
  const char* kind;
  Run f32, f64;
  Run i64 = nullptr, i32 = nullptr;
  int64_t (*workspace)(const Problem&) = nullptr;          // bytes; NULL: none
  std::vector<double> (*state)(const Problem&) = nullptr;  // made once, kept by the prepared kernel
};

// One run of a prepared kernel.
template <class Device>
struct CpuCall {
  const Problem& problem;
  const Device& device;
  void* const* pointers;  // inputs, outputs, then the workspace
  const double* state;    // made by CpuOp::state

  template <class T>
  const T* in(size_t i) const {
    return static_cast<const T*>(pointers[i]);
  }
  template <class T>
  T* out(size_t i) const {
    return static_cast<T*>(pointers[problem.inputs().size() + i]);
  }
  template <class T>
  T* workspace() const {
    return static_cast<T*>(pointers[problem.inputs().size() + problem.outputs().size()]);
  }
  int64_t size(std::string_view dim) const { return problem.size(dim); }
};

// `Backend` has: kId, the plugin's id; Device, made of a tenon_kernels_config; Call, which adds to
// CpuCall<Device> and has no members of its own; and ops(), a range of functions that return spans of
// CpuOp<Call>. Device 0 is the only one. Every kernel keeps TENON_KERNEL_EXACT, or the backend may not use
// this table.
template <class Backend>
class CpuKernels {
 public:
  static constexpr tenon_kernels table() {
    return {.struct_size = sizeof(tenon_kernels),
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
            .event_query = nullptr};
  }

 private:
  using Device = typename Backend::Device;
  using Call = typename Backend::Call;
  using Op = CpuOp<Call>;
  struct Kernel {
    const Device& device;
    Problem problem;
    typename Op::Run run;
    std::vector<double> state;
  };
  struct Choice {
    const Op* op;
    typename Op::Run run;
  };

  // The ABI's opaque types stand for those above.
  static Device* device_of(tenon_device* device) { return reinterpret_cast<Device*>(device); }
  static Kernel* kernel_of(tenon_kernel* kernel) { return reinterpret_cast<Kernel*>(kernel); }

  static const Op* find(std::string_view kind) {
    for (const auto group : Backend::ops()) {
      for (const Op& op : group()) {
        if (kind == op.kind) return &op;
      }
    }
    return nullptr;
  }

  // The check of the signature has let only these dtypes through.
  static Choice choose(const Problem& problem) {
    Choice choice{find(problem.kind()), nullptr};
    if (choice.op == nullptr)
      throw sdk::Failure(TENON_E_UNSUPPORTED, "no kernel of kind '" + std::string(problem.kind()) + "'");
    switch (problem.dtype()) {
      case TENON_F32: choice.run = choice.op->f32; break;
      case TENON_F64: choice.run = choice.op->f64; break;
      case TENON_I64: choice.run = choice.op->i64; break;
      default: choice.run = choice.op->i32; break;
    }
    if (choice.run == nullptr) {
      throw sdk::Failure(TENON_E_UNSUPPORTED, std::string(problem.kind()) + ": no kernel for dtype " +
                                                  dtype_name(problem.dtype()));
    }
    return choice;
  }

  static std::vector<double> state_of(const Op& op, const Problem& problem) {
    return op.state == nullptr ? std::vector<double>() : op.state(problem);
  }

  static tenon_code open(const tenon_kernels_config* given, tenon_device** out, tenon_error* error) {
    return sdk::guard(error, [&] {
      const auto config = sdk::read(given, TENON_END(tenon_kernels_config, reserved));
      if (config.device_id != 0) {
        throw sdk::Failure(TENON_E_ARGUMENT, std::string(Backend::kId) + ": CPU device " +
                                                 std::to_string(config.device_id) +
                                                 " does not exist, only 0");
      }
      *out = reinterpret_cast<tenon_device*>(new Device(config));
    });
  }

  static void close(tenon_device* device) { delete device_of(device); }

  static tenon_code describe(const tenon_kernels_config*, const tenon_kernel_desc* desc,
                             tenon_kernel_info* info, tenon_error* error) {
    return sdk::guard(error, [&] {
      const Problem problem(*desc);
      const Op& op = *choose(problem).op;
      const tenon_kernel_info mine = {
          .struct_size = sizeof mine,
          .flags = TENON_KERNEL_EXACT,
          .workspace_bytes = op.workspace == nullptr ? 0 : static_cast<uint64_t>(op.workspace(problem)),
          .private_bytes = state_of(op, problem).size() * sizeof(double),
          .seconds = 0};
      tenon_fill(info, &mine);
    });
  }

  static tenon_code prepare(tenon_device* device, const tenon_kernel_desc* desc, tenon_kernel** out,
                            tenon_error* error) {
    return sdk::guard(error, [&] {
      Problem problem(*desc);
      const Choice choice = choose(problem);
      std::vector<double> state = state_of(*choice.op, problem);
      *out = reinterpret_cast<tenon_kernel*>(
          new Kernel{*device_of(device), std::move(problem), choice.run, std::move(state)});
    });
  }

  static void release(tenon_kernel* kernel) { delete kernel_of(kernel); }

  static tenon_code enqueue(tenon_kernel* kernel, const tenon_stream*, void* const* pointers,
                            tenon_error* error) {
    return sdk::guard(error, [&] {
      const Kernel& k = *kernel_of(kernel);
      k.run(Call{{k.problem, k.device, pointers, k.state.data()}});
    });
  }

  static tenon_code alloc(tenon_device*, uint64_t bytes, void** out, tenon_error* error) {
    return sdk::guard(error, [&] { *out = host_alloc(bytes); });
  }

  static void free_block(tenon_device*, void* pointer) { std::free(pointer); }

  static tenon_code copy(tenon_device*, void* dst, const void* src, uint64_t bytes, const tenon_stream*,
                         tenon_error*) {
    if (bytes != 0) std::memcpy(dst, src, bytes);
    return TENON_OK;
  }
};

}  // namespace tenon::kernels
