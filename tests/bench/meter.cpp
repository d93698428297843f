#include "meter.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <numeric>

#include "graph/types.h"

// What the metered prepare() hands out in place of the plugin's kernel.
struct tenon_kernel {
  tenon_kernel* inner;
  tenon::bench::Record* record;
};

namespace tenon::bench {
namespace {

Meter*& current() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static Meter* meter = nullptr;
  return meter;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class Call>
tenon_code timed(Record& record, Call&& call) {
  const double start = seconds_now();
  const tenon_code code = call();
  record.seconds.push_back(seconds_now() - start);
  return code;
}

double elements(const tenon_shape& shape) {
  return std::accumulate(shape.dims, shape.dims + shape.ndim, 1.0,
                         [](double n, int64_t dim) { return n * static_cast<double>(dim); });
}

double bytes(const tenon_shape& shape) {
  return elements(shape) * static_cast<double>(size_of(static_cast<Dtype>(shape.dtype)));
}

struct Work {
  std::string name;
  double flops, bytes;
};

// Rows, outputs and sum of a product.
Work product_work(const std::string& kind, const tenon_kernel_desc& desc) {
  const double x = elements(desc.inputs[0]), w = elements(desc.inputs[1]), y = elements(desc.outputs[0]);
  // With M, N, K: every operand is the product of two of them, so all three give the square.
  const double all = std::sqrt(x * w * y);
  return {fmt::format("{} {} x {} x {}", kind, all / w, all / x, all / y), 2 * all, 0};
}

Work work_of(const tenon_kernel_desc& desc) {
  const std::string kind = desc.kind;
  Work work{kind, 0, 0};
  if (kind.starts_with("linear")) {
    work = product_work(kind, desc);
  } else if (kind.starts_with("attention")) {  // causal: half of all pairs
    const tenon_shape& k = desc.inputs[kind == "attention" ? 1 : 2];
    const tenon_shape& q = desc.inputs[kind == "attention" ? 0 : 1];
    work.flops = (kind == "attention" ? 2 : 5) * elements(q) * static_cast<double>(k.dims[1]);
    work.name = fmt::format("{} [{}]", kind, fmt::join(q.dims, q.dims + q.ndim, " "));
  } else if (desc.num_outputs > 0) {
    const tenon_shape& x =
        elements(desc.outputs[0]) > 1 || desc.num_inputs == 0 ? desc.outputs[0] : desc.inputs[0];
    work.name = fmt::format("{} [{}]", kind, fmt::join(x.dims, x.dims + x.ndim, " "));
  }
  for (uint32_t i = 0; i < desc.num_inputs; ++i) {
    const bool gathered = kind == "embedding" && i == 1;  // only the rows that are looked up
    work.bytes += bytes(gathered ? desc.outputs[0] : desc.inputs[i]);
  }
  const bool accumulate = (desc.flags & TENON_KERNEL_ACCUMULATE) != 0;
  const bool scattered = accumulate && kind == "embedding_wgrad";
  for (uint32_t i = 0; i < desc.num_outputs; ++i) {
    work.bytes += bytes(scattered ? desc.inputs[0] : desc.outputs[i]) * (accumulate ? 2 : 1);
  }
  if (accumulate) work.name += " +=";
  return work;
}

tenon_code prepare(tenon_device* device, const tenon_kernel_desc* desc, tenon_kernel** out,
                   tenon_error* error) {
  tenon_kernel* inner = nullptr;
  const tenon_code code = current()->kernels().prepare(device, desc, &inner, error);
  if (code < 0) return code;
  const Work work = work_of(*desc);
  Record& record = current()->record(work.name);
  record.name = work.name;
  record.flops = work.flops;
  record.bytes = work.bytes;
  *out = new tenon_kernel{inner, &record};
  return code;
}

void release(tenon_kernel* kernel) {
  current()->kernels().release(kernel->inner);
  delete kernel;
}

tenon_code enqueue(tenon_kernel* kernel, const tenon_stream* stream, void* const* pointers,
                   tenon_error* error) {
  return timed(*kernel->record,
               [&] { return current()->kernels().enqueue(kernel->inner, stream, pointers, error); });
}

tenon_code step(tenon_optimizer_state* state, const tenon_stream* stream, tenon_update* const* updates,
                uint32_t num_updates, const tenon_step_scalars* scalars, tenon_error* error) {
  uint64_t count = 0;
  for (uint32_t i = 0; i < num_updates; ++i) count += updates[i]->count;
  Record& record = current()->record(fmt::format("update of {} parameters", count));
  if (record.bytes == 0) {
    tenon_optimizer_info info{};
    info.struct_size = sizeof info;
    current()->optimizer().describe(state, &info, nullptr);
    record.name = fmt::format("update of {} parameters", count);
    const size_t width = size_of(static_cast<Dtype>(updates[0]->dtype));
    record.bytes = static_cast<double>(count * width * (3 + 2 * info.num_slots));  // gradients are only read
  }
  return timed(record, [&] {
    return current()->optimizer().step(state, stream, updates, num_updates, scalars, error);
  });
}

}  // namespace

Meter::Meter(PluginSet& plugins)
    : kernels_(plugins.kernels.table),
      optimizer_(plugins.optimizer.table),
      metered_kernels_(*kernels_),
      metered_optimizer_(*optimizer_) {
  metered_kernels_.prepare = prepare;
  metered_kernels_.release = release;
  metered_kernels_.enqueue = enqueue;
  metered_optimizer_.step = step;
  plugins.kernels.table = &metered_kernels_;
  plugins.optimizer.table = &metered_optimizer_;
  current() = this;
}

Meter::~Meter() { current() = nullptr; }

void Meter::clear() {
  for (auto& [name, record] : records_) record.seconds.clear();
}

}  // namespace tenon::bench
