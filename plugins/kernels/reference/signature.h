// What every kernel plugin of this tree accepts: docs/reference/ops.md as a table, and the check of a
// kernel descriptor against it. Shared by the CPU plugins; each compiles its own copy.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon/kernels.h"

namespace tenon::kernels {

// One row of docs/reference/ops.md.
// Operands: "name[dims] dtype", separated by commas; `k..` stands for any number of dims; dtype is
// float (f32 or f64, the same for all; the default), any (f32, f64, i64 or i32, the same for all) or a
// fixed one. "*name" repeats: it takes all inputs that the other operands leave. Dims "?" are checked
// by the kind itself.
struct Signature {
  const char* kind;
  const char* inputs;
  const char* outputs;
  const char* attrs;  // "eps float, key int"
  bool accumulate;    // may run with TENON_KERNEL_ACCUMULATE
  bool inplace;       // output 0 may share the memory of input 0
};
std::span<const Signature> signatures();
// NULL when there is no such kind.
const Signature* find_signature(std::string_view kind);

const char* dtype_name(uint32_t dtype);
int64_t dtype_bytes(uint32_t dtype);

struct Shape {
  uint32_t dtype = 0;
  std::vector<int64_t> dims;
  int64_t elements() const;
  std::string text() const;  // "f32[2 3]"
};

// A descriptor that has passed the check, owning copies of everything in it.
class Problem {
 public:
  // Throws sdk::Failure: TENON_E_UNSUPPORTED for a kind, dtype or flag that no kernel has,
  // TENON_E_ARGUMENT for anything malformed; the message names the kind and the operand.
  explicit Problem(const tenon_kernel_desc& desc);

  const Signature& signature() const { return *signature_; }
  std::string_view kind() const { return signature_->kind; }
  // The dtype of the operands marked float or any; TENON_F64 where there are none.
  uint32_t dtype() const { return dtype_; }
  bool accumulate() const { return accumulate_; }
  const std::vector<Shape>& inputs() const { return inputs_; }
  const std::vector<Shape>& outputs() const { return outputs_; }
  // Size of a dim of the signature, "h"; of a variadic one, "k..", the product (1 for no dims).
  int64_t size(std::string_view dim) const;
  double number(std::string_view attr) const;
  int64_t integer(std::string_view attr) const;

 private:
  struct Operand;
  using Dims = std::vector<int64_t>;
  void bind_all(const char* text, const char* role, const std::vector<Shape>& shapes);
  void bind(const Operand& operand, const std::string& place, const Shape& shape);
  void bind_dtype(const Operand& operand, const std::string& place, const Shape& shape);
  void bind_dims(const Operand& operand, const std::string& place, const Shape& shape);
  void bind_attrs(const tenon_kernel_desc& desc);
  void check_flags(const tenon_kernel_desc& desc);
  void check_kind() const;
  void check_routing() const;
  void check_slice() const;
  void check_concat() const;
  const Dims* bound(std::string_view dim) const;
  [[noreturn]] void fail(tenon_code code, const std::string& message) const;

  const Signature* signature_ = nullptr;
  uint32_t dtype_ = UINT32_MAX;
  bool accumulate_ = false;
  std::vector<Shape> inputs_, outputs_;
  std::vector<std::pair<std::string, Dims>> dims_;
  std::vector<std::pair<std::string, tenon_option>> attrs_;  // numbers only: no borrowed strings
};

// Whether indices lie in [0, limit), or are negative where that means padding. Throws TENON_E_ARGUMENT
// that names kind, operand and token.
enum class Padding { refused, allowed };
void check_indices(std::string_view kind, const char* operand, const int32_t* indices, int64_t count,
                   int64_t limit, Padding padding);

}  // namespace tenon::kernels
