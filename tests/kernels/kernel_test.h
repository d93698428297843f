// Loads a built kernel plugin with a host that has real threads, and runs single ops on it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tenon/kernels.h"
#include "tenon/plugin.h"

namespace tenon::test {

// A tensor in host memory. Values go in and out as double; integers up to 2^53 survive.
class Tensor {
 public:
  Tensor(uint32_t dtype, std::vector<int64_t> dims);
  uint32_t dtype() const { return dtype_; }
  const std::vector<int64_t>& dims() const { return dims_; }
  int64_t elements() const;
  double at(int64_t i) const;
  void set(int64_t i, double value);
  std::vector<uint8_t>& bytes() { return bytes_; }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  uint32_t dtype_;
  std::vector<int64_t> dims_;
  std::vector<uint8_t> bytes_;
};

struct Attr {
  std::string key;
  double value;
  bool integer;
  int64_t exact;  // integers: all 64 bits
};
inline Attr number(const std::string& key, double value) { return {key, value, false, 0}; }
inline Attr integer(const std::string& key, int64_t value) {
  return {key, static_cast<double>(value), true, value};
}

struct Op {
  std::string kind;
  std::vector<Tensor> in;
  std::vector<Tensor> out;  // shapes, and where the op accumulates the values before it
  std::vector<Attr> attrs;
  uint32_t flags = 0;
  int32_t inplace = -1;
};

struct Result {
  tenon_code code = TENON_OK;
  std::string message;
  std::vector<Tensor> out;
};

// A plugin, initialised with a mock host, and one open device.
class Kernels {
 public:
  // `isa` empty: no options. Throws std::runtime_error where loading or opening fails.
  Kernels(const std::string& name, int threads, const std::string& isa = "");
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // Runs one op on buffers `offset` bytes off a 64-byte boundary (a multiple of 8). The memory around every
  // buffer is watched; outputs and workspace start as garbage. Fails the test where the op writes elsewhere.
  Result run(const Op& op, int64_t offset = 0) const;
  tenon_code describe(const Op& op, tenon_kernel_info& info, std::string& message) const;
  const tenon_kernels& table() const { return *table_; }
  tenon_kernels_config config() const;  // of device 0, without options
  tenon_device* device() const { return device_; }
  const tenon_plugin& plugin() const { return *plugin_; }

 private:
  struct Host;
  std::unique_ptr<Host> host_;
  const tenon_plugin* plugin_ = nullptr;
  const tenon_kernels* table_ = nullptr;
  tenon_device* device_ = nullptr;
};

// The instruction sets that kernels/cpu has on this machine.
std::vector<std::string> available_isas();

}  // namespace tenon::test
