#include "kernel_test.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace tenon::test {
namespace {

int64_t bytes_of(uint32_t dtype) {
  return dtype == TENON_F64 || dtype == TENON_I64 ? 8 : (dtype == TENON_U8 ? 1 : 4);
}

// Memory with watched bytes around it.
class Buffer {
 public:
  Buffer(size_t bytes, int64_t offset) : storage_(bytes + 4 * kGuard, kMark), bytes_(bytes) {
    const auto address = reinterpret_cast<uintptr_t>(storage_.data()) + kGuard;
    start_ = static_cast<size_t>((address + 63) / 64 * 64 - reinterpret_cast<uintptr_t>(storage_.data())) +
             static_cast<size_t>(offset);
    std::memset(data(), 0xff, bytes_);  // NaN as floating point
  }
  uint8_t* data() { return storage_.data() + start_; }
  bool intact() const {
    const auto marked = [](uint8_t byte) { return byte == kMark; };
    const auto begin = storage_.begin() + static_cast<std::ptrdiff_t>(start_);
    return std::all_of(storage_.begin(), begin, marked) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(bytes_), storage_.end(), marked);
  }

 private:
  static constexpr size_t kGuard = 128;
  static constexpr uint8_t kMark = 0xa5;
  std::vector<uint8_t> storage_;
  size_t start_ = 0, bytes_;
};

// A descriptor and what it points to.
struct Desc {
  std::vector<tenon_shape> in, out;
  std::vector<tenon_option> attrs;
  tenon_kernel_desc desc{};

  explicit Desc(const Op& op) {
    const auto shape = [](const Tensor& t) {
      return tenon_shape{t.dtype(), static_cast<uint32_t>(t.dims().size()), t.dims().data()};
    };
    for (const Tensor& t : op.in) in.push_back(shape(t));
    for (const Tensor& t : op.out) out.push_back(shape(t));
    for (const Attr& a : op.attrs) {
      tenon_option option{};
      option.key = a.key.c_str();
      option.kind = a.integer ? TENON_INT : TENON_FLOAT;
      option.i = a.exact;
      option.f = a.value;
      attrs.push_back(option);
    }
    desc = {.struct_size = sizeof desc,
            .flags = op.flags,
            .kind = op.kind.c_str(),
            .inputs = in.data(),
            .outputs = out.data(),
            .attrs = attrs.data(),
            .num_inputs = static_cast<uint32_t>(in.size()),
            .num_outputs = static_cast<uint32_t>(out.size()),
            .num_attrs = static_cast<uint32_t>(attrs.size()),
            .inplace = op.inplace};
  }
};

}  // namespace

Tensor::Tensor(uint32_t dtype, std::vector<int64_t> dims) : dtype_(dtype), dims_(std::move(dims)) {
  bytes_.resize(static_cast<size_t>(elements() * bytes_of(dtype_)));
}

int64_t Tensor::elements() const {
  int64_t n = 1;
  for (int64_t d : dims_) n *= d;
  return n;
}

double Tensor::at(int64_t i) const {
  const uint8_t* p = bytes_.data() + i * bytes_of(dtype_);
  const auto as = [p]<class T>(T value) {
    std::memcpy(&value, p, sizeof value);
    return static_cast<double>(value);
  };
  switch (dtype_) {
    case TENON_F64: return as(double{});
    case TENON_F32: return as(float{});
    case TENON_I64: return as(int64_t{});
    case TENON_I32: return as(int32_t{});
    default: return as(uint8_t{});
  }
}

void Tensor::set(int64_t i, double value) {
  uint8_t* p = bytes_.data() + i * bytes_of(dtype_);
  const auto put = [p](auto x) { std::memcpy(p, &x, sizeof x); };
  switch (dtype_) {
    case TENON_F64: put(value); break;
    case TENON_F32: put(static_cast<float>(value)); break;
    case TENON_I64: put(static_cast<int64_t>(value)); break;
    case TENON_I32: put(static_cast<int32_t>(value)); break;
    default: put(static_cast<uint8_t>(value)); break;
  }
}

struct Kernels::Host {
  tenon_host host{};
  tenon_parallel parallel{};
  int threads;

  explicit Host(int n) : threads(n) {
    host = {.struct_size = sizeof host,
            .abi_minor = TENON_ABI_MINOR,
            .ctx = this,
            .get_interface = get_interface,
            .log_enabled = [](const tenon_host*, uint32_t) -> int32_t { return 0; },
            .log = [](const tenon_host*, uint32_t, const char*, uint32_t, const char*) {}};
    parallel = {.struct_size = sizeof parallel,
                .reserved = 0,
                .ctx = this,
                .parallel_for = parallel_for,
                .num_threads = [](const tenon_parallel* self) -> int32_t {
                  return static_cast<Host*>(self->ctx)->threads;
                }};
  }
  // No threads: the host has no such service.
  static const void* get_interface(const tenon_host* host, const char* id) {
    Host* self = static_cast<Host*>(host->ctx);
    const bool has = std::string(id) == TENON_HOST_PARALLEL && self->threads > 0;
    return has ? &self->parallel : nullptr;
  }
  static void parallel_for(const tenon_parallel* self, int64_t parts, void (*fn)(void*, int64_t), void* arg) {
    std::atomic<int64_t> next{0};
    const auto work = [&] {
      for (int64_t part = next++; part < parts; part = next++) fn(arg, part);
    };
    std::vector<std::thread> others;
    for (int i = 1; i < static_cast<Host*>(self->ctx)->threads; ++i) others.emplace_back(work);
    work();
    for (std::thread& t : others) t.join();
  }
};

Kernels::Kernels(const std::string& name, int threads, const std::string& isa)
    : host_(std::make_unique<Host>(threads)) {
  const std::string path = std::string(TENON_PLUGIN_DIR) + "/libtenon-kernels-" + name + ".so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) throw std::runtime_error(dlerror());
  plugin_ = static_cast<const tenon_plugin*>(dlsym(library, "tenon_plugin_v0"));
  if (plugin_ == nullptr) throw std::runtime_error(path + " has no tenon_plugin_v0");
  tenon_error error{};
  error.struct_size = sizeof error;
  if (plugin_->init(&host_->host, &error) != TENON_OK) throw std::runtime_error(error.message);
  table_ = static_cast<const tenon_kernels*>(plugin_->get_interface(TENON_KERNELS));
  if (table_ == nullptr) throw std::runtime_error(path + " has no kernels");
  tenon_option option{};
  option.key = "isa";
  option.kind = TENON_STRING;
  option.s = isa.c_str();
  tenon_kernels_config config = this->config();
  config.num_options = isa.empty() ? 0 : 1;
  config.options = &option;
  if (table_->open(&config, &device_, &error) != TENON_OK) {
    throw std::runtime_error(error.message);
  }
}

Kernels::~Kernels() {
  table_->close(device_);
  plugin_->deinit();
}

tenon_kernels_config Kernels::config() const {
  tenon_kernels_config config{};
  config.struct_size = sizeof config;
  config.host = &host_->host;
  return config;
}

tenon_code Kernels::describe(const Op& op, tenon_kernel_info& info, std::string& message) const {
  tenon_error error{};
  error.struct_size = sizeof error;
  const Desc desc(op);
  const tenon_kernels_config config = this->config();
  info.struct_size = sizeof info;
  const tenon_code code = table_->describe(&config, &desc.desc, &info, &error);
  message = error.message;
  return code;
}

Result Kernels::run(const Op& op, int64_t offset) const {
  const Desc desc(op);
  const tenon_kernels_config config = this->config();
  tenon_kernel_info info{};
  info.struct_size = sizeof info;
  tenon_kernel* kernel = nullptr;
  tenon_error error{};
  error.struct_size = sizeof error;
  Result result;
  result.code = table_->describe(&config, &desc.desc, &info, &error);
  if (result.code == TENON_OK) result.code = table_->prepare(device_, &desc.desc, &kernel, &error);
  if (result.code != TENON_OK) return {result.code, error.message, {}};

  std::vector<Buffer> buffers;
  std::vector<void*> pointers;
  const auto add = [&](const Tensor* tensor, size_t bytes, int64_t shift) {
    buffers.emplace_back(bytes, shift);
    if (tensor != nullptr && bytes > 0) std::memcpy(buffers.back().data(), tensor->bytes().data(), bytes);
  };
  for (const Tensor& t : op.in) add(&t, t.bytes().size(), offset);
  for (const Tensor& t : op.out) {
    add((op.flags & TENON_KERNEL_ACCUMULATE) != 0 ? &t : nullptr, t.bytes().size(), offset);
  }
  add(nullptr, info.workspace_bytes, 0);
  for (Buffer& b : buffers) pointers.push_back(b.data());
  if (op.inplace >= 0) pointers[op.in.size()] = pointers[static_cast<size_t>(op.inplace)];
  if (info.workspace_bytes == 0) pointers.back() = nullptr;

  const tenon_stream stream{{kDLCPU, 0}, nullptr};
  result.code = table_->enqueue(kernel, &stream, pointers.data(), &error);
  table_->release(kernel);
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_TRUE(buffers[i].intact()) << op.kind << " wrote outside of operand " << i;
  }
  if (result.code != TENON_OK) return {result.code, error.message, {}};
  for (size_t i = 0; i < op.in.size(); ++i) {
    if (static_cast<int32_t>(i) == op.inplace || op.in[i].bytes().empty()) continue;
    EXPECT_EQ(std::memcmp(pointers[i], op.in[i].bytes().data(), op.in[i].bytes().size()), 0)
        << op.kind << " changed input " << i;
  }
  for (size_t i = 0; i < op.out.size(); ++i) {
    Tensor t(op.out[i].dtype(), op.out[i].dims());
    if (!t.bytes().empty()) std::memcpy(t.bytes().data(), pointers[op.in.size() + i], t.bytes().size());
    result.out.push_back(std::move(t));
  }
  return result;
}

std::vector<std::string> available_isas() {
  std::vector<std::string> found;
  for (const char* isa : {"avx512", "avx2", "baseline"}) {
    try {
      const Kernels kernels("cpu", 1, isa);
      found.emplace_back(isa);
    } catch (const std::runtime_error&) {  // asked for and refused: its own test looks at the message
    }
  }
  return found;
}

}  // namespace tenon::test
