// tenon_sdk/kernel_problem.hpp - the check of a kernel descriptor against its signature in tenon_sdk/ops.hpp.
// Header-only, for authors of kernels: construct a Problem from the descriptor that describe() or prepare()
// was given, then ask it for sizes and attributes by the names of the table.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon/kernels.h"
#include "tenon_sdk/ops.hpp"
#include "tenon_sdk/plugin.hpp"

namespace tenon::kernels {

struct DtypeInfo {
  const char* name;
  int64_t bytes;
};
inline constexpr DtypeInfo kDtypes[] = {{"f64", 8}, {"f32", 4}, {"bf16", 2}, {"f16", 2},
                                        {"i64", 8}, {"i32", 4}, {"u8", 1}};

inline std::span<const Signature> signatures() { return kSignatures; }

// NULL when there is no such kind.
inline const Signature* find_signature(std::string_view kind) {
  for (const Signature& s : kSignatures) {
    if (kind == s.kind) return &s;
  }
  return nullptr;
}

inline const char* dtype_name(uint32_t dtype) {
  return dtype < std::size(kDtypes) ? kDtypes[dtype].name : "an unknown dtype";
}
inline int64_t dtype_bytes(uint32_t dtype) { return dtype < std::size(kDtypes) ? kDtypes[dtype].bytes : 0; }

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
  // Needs no more of it than the first version had.
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
  std::vector<double> numbers() const;  // of all attributes, in the order of the signature

 private:
  struct Operand;
  using Dims = std::vector<int64_t>;
  void bind_all(const char* text, const char* role, const std::vector<Shape>& shapes);
  void bind(const Operand& operand, const std::string& place, const Shape& shape);
  void bind_dtype(const Operand& operand, const std::string& place, const Shape& shape);
  std::string wanted_dims(const Operand& operand) const;
  void bind_dims(const Operand& operand, const std::string& place, const Shape& shape);
  void bind_attrs(const tenon_kernel_desc& desc);
  void check_flags(const tenon_kernel_desc& desc);
  void check_range(const std::string& attr, double value, std::string_view limit) const;
  int64_t noted_size(const std::string& note) const;
  void check_noted(const char* text, const char* role) const;
  void check_sizes() const;
  void check_kind() const;
  void check_slice() const;
  void check_concat() const;
  const Dims* bound(std::string_view dim) const;
  int64_t named(const std::string& word) const;
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
inline void check_indices(std::string_view kind, const char* operand, const int32_t* indices, int64_t count,
                          int64_t limit, Padding padding);

// ---- the rest is implementation ----

namespace detail {

inline bool is_variadic(std::string_view dim) { return dim.size() > 2 && dim.substr(dim.size() - 2) == ".."; }

inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    const size_t begin = std::min(text.find_first_not_of(' '), end);
    if (end > begin) parts.emplace_back(text.substr(begin, end - begin));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

inline std::string text_of(const std::vector<int64_t>& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += " ";
    text += std::to_string(dims[i]);
  }
  return text + "]";
}

inline Shape copy(const tenon_shape& shape) {
  return {shape.dtype, std::vector<int64_t>(shape.dims, shape.dims + shape.ndim)};
}

}  // namespace detail

inline int64_t Shape::elements() const {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

inline std::string Shape::text() const { return dtype_name(dtype) + detail::text_of(dims); }

struct Problem::Operand {
  std::string name, dtype = "float";
  std::vector<std::string> dims;
  std::vector<std::string> notes;  // of each dim: "" or what stands behind its "=": "experts", "s/group"
  bool repeats = false, free_dims = false;

  explicit Operand(std::string_view text) {
    repeats = text.front() == '*';
    if (repeats) text.remove_prefix(1);
    const size_t open = text.find('['), close = text.find(']');
    name = std::string(text.substr(0, open));
    for (const std::string& word : detail::split(text.substr(open + 1, close - open - 1), ' ')) {
      const size_t equals = std::min(word.find('='), word.size());
      dims.push_back(word.substr(0, equals));
      notes.push_back(equals < word.size() ? word.substr(equals + 1) : "");
    }
    free_dims = dims.size() == 1 && dims[0] == "?";
    if (const auto rest = detail::split(text.substr(close + 1), ' '); !rest.empty()) dtype = rest[0];
  }
};

inline Problem::Problem(const tenon_kernel_desc& given) {
  const auto desc = sdk::read(&given, TENON_END(tenon_kernel_desc, inplace));
  const std::string kind = desc.kind != nullptr ? desc.kind : "(no kind)";
  signature_ = find_signature(kind);
  if (signature_ == nullptr) throw sdk::Failure(TENON_E_UNSUPPORTED, "no kernel for op kind '" + kind + "'");
  for (uint32_t i = 0; i < desc.num_inputs; ++i) inputs_.push_back(detail::copy(desc.inputs[i]));
  for (uint32_t i = 0; i < desc.num_outputs; ++i) outputs_.push_back(detail::copy(desc.outputs[i]));
  bind_all(signature_->inputs, "input", inputs_);
  bind_all(signature_->outputs, "output", outputs_);
  if (dtype_ == UINT32_MAX) dtype_ = TENON_F64;
  bind_attrs(desc);
  check_flags(desc);
  check_sizes();
  check_noted(signature_->inputs, "input");
  check_noted(signature_->outputs, "output");
  check_kind();
}

inline void Problem::fail(tenon_code code, const std::string& message) const {
  throw sdk::Failure(code, std::string(signature_->kind) + ": " + message);
}

inline void Problem::bind_all(const char* text, const char* role, const std::vector<Shape>& shapes) {
  std::vector<Operand> operands;
  for (const std::string& part : detail::split(text, ',')) operands.emplace_back(part);
  const bool repeats = !operands.empty() && operands.front().repeats;  // only ever the first
  const size_t extra = shapes.size() - operands.size();
  if (shapes.size() < operands.size() || (!repeats && extra != 0)) {
    fail(TENON_E_ARGUMENT, "takes " + std::string(repeats ? "at least " : "") +
                               std::to_string(operands.size()) + " " + role + "s, got " +
                               std::to_string(shapes.size()));
  }
  for (size_t i = 0; i < shapes.size(); ++i) {
    const size_t which = !repeats ? i : (i <= extra ? 0 : i - extra);
    bind(operands[which], std::string(role) + " " + std::to_string(i) + " (" + operands[which].name + ")",
         shapes[i]);
  }
}

inline void Problem::bind(const Operand& operand, const std::string& place, const Shape& shape) {
  bind_dtype(operand, place, shape);
  int64_t bytes = dtype_bytes(shape.dtype);
  for (int64_t d : shape.dims) {
    if (d < 0) fail(TENON_E_ARGUMENT, place + ": negative size in " + shape.text());
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(d, 1), &bytes)) {
      fail(TENON_E_ARGUMENT, place + ": " + shape.text() + " does not fit into 2^63 bytes");
    }
  }
  if (!operand.free_dims) bind_dims(operand, place, shape);
}

inline void Problem::bind_dtype(const Operand& operand, const std::string& place, const Shape& shape) {
  const bool any = operand.dtype == "any";
  if (!any && operand.dtype != "float") {
    if (operand.dtype != dtype_name(shape.dtype)) {
      fail(TENON_E_ARGUMENT, place + ": must be " + operand.dtype + ", got " + shape.text());
    }
    return;
  }
  const bool real = shape.dtype == TENON_F32 || shape.dtype == TENON_F64;
  if (!real && !(any && (shape.dtype == TENON_I64 || shape.dtype == TENON_I32))) {
    fail(TENON_E_UNSUPPORTED, place + ": dtype must be " + (any ? "f32, f64, i64 or i32" : "f32 or f64") +
                                  ", got " + shape.text());
  }
  if (dtype_ != UINT32_MAX && dtype_ != shape.dtype) {
    fail(TENON_E_ARGUMENT,
         place + ": must be " + dtype_name(dtype_) + " as the operands before it, got " + shape.text());
  }
  dtype_ = shape.dtype;
}

// "b=2 s h.." of an operand whose dims are known in part.
inline std::string Problem::wanted_dims(const Operand& operand) const {
  std::string wanted;
  for (const std::string& name : operand.dims) {
    if (!wanted.empty()) wanted += " ";
    wanted += name;
    if (const Dims* have = bound(name)) wanted.append("=").append(detail::text_of(*have));
  }
  return wanted;
}

inline void Problem::bind_dims(const Operand& operand, const std::string& place, const Shape& shape) {
  size_t known = 0;
  bool open = false;  // one variadic part whose length this operand decides
  for (const std::string& name : operand.dims) {
    const Dims* have = bound(name);
    const bool decides = have == nullptr && detail::is_variadic(name);
    open = open || decides;
    if (!decides) known += have != nullptr ? have->size() : 1;
  }
  const std::string message = place + ": must be [" + wanted_dims(operand) + "], got " + shape.text();
  const size_t rank = shape.dims.size();
  if (open ? rank < known : rank != known) fail(TENON_E_ARGUMENT, message);
  auto at = shape.dims.begin();
  for (const std::string& name : operand.dims) {
    const Dims* have = bound(name);
    const size_t free = detail::is_variadic(name) ? rank - known : 1;
    const size_t length = have != nullptr ? have->size() : free;
    Dims part(at, at + static_cast<std::ptrdiff_t>(length));
    at += static_cast<std::ptrdiff_t>(length);
    if (have != nullptr && *have != part) fail(TENON_E_ARGUMENT, message);
    if (have == nullptr) dims_.emplace_back(name, std::move(part));
  }
}

inline void Problem::bind_attrs(const tenon_kernel_desc& desc) {
  const sdk::Options given(desc.attrs, desc.num_attrs);
  for (const std::string& part : detail::split(signature_->attrs, ',')) {
    const auto words = detail::split(part, ' ');
    const tenon_option* found = given.find(words[0]);
    if (found == nullptr) fail(TENON_E_ARGUMENT, "attribute '" + words[0] + "' is missing");
    const bool integer = found->kind == TENON_INT || found->kind == TENON_BOOL;
    if (!integer && (words[1] == "int" || found->kind != TENON_FLOAT)) {
      fail(TENON_E_ARGUMENT, "attribute '" + words[0] + "' must be " + words[1]);
    }
    for (size_t i = 2; i < words.size(); ++i)
      check_range(words[0], integer ? static_cast<double>(found->i) : found->f, words[i]);
    attrs_.emplace_back(words[0], *found);
    attrs_.back().second.key = nullptr;
  }
}

namespace detail {

// A limit of a value as signatures write it, ">=1": what must hold, and what it is called.
struct Limit {
  const char* sign;
  const char* words;
  bool (*holds)(double value, double than);
};
inline constexpr Limit kLimits[] = {
    {">=", "at least", [](double value, double than) { return value >= than; }},
    {"<=", "at most", [](double value, double than) { return value <= than; }},
    {">", "above", [](double value, double than) { return value > than; }},
    {"<", "below", [](double value, double than) { return value < than; }},
    {"%", "divisible by", [](double value, double than) { return std::fmod(value, than) == 0; }}};

inline const Limit& limit_of(std::string_view text) {
  return *std::ranges::find_if(kLimits, [text](const Limit& limit) { return text.starts_with(limit.sign); });
}

inline std::string text_of(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", value);
  return text.data();
}

}  // namespace detail

inline void Problem::check_range(const std::string& attr, double value, std::string_view limit) const {
  const detail::Limit& must = detail::limit_of(limit);
  const std::string than(limit.substr(std::strlen(must.sign)));
  if (must.holds(value, std::stod(than))) return;
  fail(TENON_E_ARGUMENT,
       "attribute '" + attr + "' = " + detail::text_of(value) + " must be " + must.words + " " + than);
}

inline void Problem::check_flags(const tenon_kernel_desc& desc) {
  accumulate_ = (desc.flags & TENON_KERNEL_ACCUMULATE) != 0;
  if (accumulate_ && !signature_->accumulate) fail(TENON_E_UNSUPPORTED, "cannot accumulate into its outputs");
  if ((desc.flags & ~uint32_t{TENON_KERNEL_ACCUMULATE | TENON_KERNEL_EXACT}) != 0) {
    fail(TENON_E_UNSUPPORTED, "unknown flags " + std::to_string(desc.flags));
  }
  if (desc.inplace < 0) return;
  if (!signature_->inplace || desc.inplace != 0) {
    fail(TENON_E_UNSUPPORTED, "cannot run in place of input " + std::to_string(desc.inplace));
  }
}

// A number, or the size of a dim, or the value of an attribute.
inline int64_t Problem::named(const std::string& word) const {
  if (word.find_first_not_of("0123456789") == std::string::npos) return std::stoll(word);
  return bound(word) != nullptr ? size(word) : integer(word);
}

inline void Problem::check_sizes() const {
  for (const std::string& text : detail::split(signature_->sizes, ',')) {
    const size_t sign = text.find_first_of("<>%");
    const detail::Limit& must = detail::limit_of(std::string_view(text).substr(sign));
    const std::string dim = text.substr(0, sign), than = text.substr(sign + std::strlen(must.sign));
    const int64_t value = size(dim), limit = named(than);
    if (must.holds(static_cast<double>(value), static_cast<double>(limit))) continue;
    const std::string shown = std::to_string(limit);
    fail(TENON_E_ARGUMENT, "size " + dim + " = " + std::to_string(value) + " must be " + must.words + " " +
                               (than == shown ? shown : than + " = " + shown));
  }
}

// What a note says of a dim's size: an attribute's value, "experts", or how many parts a size has, "s/group".
inline int64_t Problem::noted_size(const std::string& note) const {
  const size_t slash = note.find('/');
  if (slash == std::string::npos) return integer(note);
  const std::string whole = note.substr(0, slash), part = note.substr(slash + 1);
  if (size(whole) % integer(part) == 0) return size(whole) / integer(part);
  fail(TENON_E_ARGUMENT, "size " + whole + " = " + std::to_string(size(whole)) + " must be divisible by " +
                             part + " = " + std::to_string(integer(part)));
}

inline void Problem::check_noted(const char* text, const char* role) const {
  const auto parts = detail::split(text, ',');
  for (size_t i = 0; i < parts.size(); ++i) {
    const Operand operand(parts[i]);
    for (size_t d = 0; d < operand.dims.size(); ++d) {
      if (operand.notes[d].empty()) continue;
      const int64_t wanted = noted_size(operand.notes[d]), found = size(operand.dims[d]);
      if (found == wanted) continue;
      fail(TENON_E_ARGUMENT, std::string(role) + " " + std::to_string(i) + " (" + operand.name +
                                 "): " + operand.dims[d] + " = " + operand.notes[d] + " must be " +
                                 std::to_string(wanted) + ", got " + std::to_string(found));
    }
  }
}

// What no signature can say: sizes that follow from attributes by a formula of the kind's own.
inline void Problem::check_kind() const {
  if (kind() == "sqnorm_chunks" &&
      (integer("chunk") < 1 || (size("e") + integer("chunk") - 1) / integer("chunk") != size("c"))) {
    fail(TENON_E_ARGUMENT, "output 0 (y) must have one element for each chunk of the input");
  }
  if (kind() == "slice") check_slice();
  if (kind() == "concat") check_concat();
}

inline void Problem::check_slice() const {
  const auto& x = inputs_[0];
  const int64_t dim = integer("dim"), start = integer("start"), count = integer("size");
  if (dim < 0 || dim >= static_cast<int64_t>(x.dims.size())) {
    fail(TENON_E_ARGUMENT, "attribute 'dim' = " + std::to_string(dim) + " is no dim of " + x.text());
  }
  const auto d = static_cast<size_t>(dim);
  if (start < 0 || count < 0 || start > x.dims[d] - count) {
    fail(TENON_E_ARGUMENT, "part " + std::to_string(start) + " to " + std::to_string(start + count) +
                               " lies outside of dim " + std::to_string(dim) + " of " + x.text());
  }
  Shape wanted = x;
  wanted.dims[d] = count;
  if (wanted.dims != outputs_[0].dims) {
    fail(TENON_E_ARGUMENT, "output 0 (y): must be " + wanted.text() + ", got " + outputs_[0].text());
  }
}

inline void Problem::check_concat() const {
  Shape wanted = inputs_[0];
  const int64_t dim = integer("dim");
  if (dim < 0 || dim >= static_cast<int64_t>(wanted.dims.size())) {
    fail(TENON_E_ARGUMENT, "attribute 'dim' = " + std::to_string(dim) + " is no dim of " + wanted.text());
  }
  const auto d = static_cast<size_t>(dim);
  wanted.dims[d] = 0;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Shape other = inputs_[i];
    if (other.dims.size() == wanted.dims.size()) {
      wanted.dims[d] += other.dims[d];
      other.dims[d] = wanted.dims[d];
    }
    if (other.dims != wanted.dims) {
      fail(TENON_E_ARGUMENT, "input " + std::to_string(i) + " (x): " + inputs_[i].text() +
                                 " differs from input 0, " + inputs_[0].text() + ", outside of dim " +
                                 std::to_string(dim));
    }
  }
  if (wanted.dims != outputs_[0].dims) {
    fail(TENON_E_ARGUMENT, "output 0 (y): must be " + wanted.text() + ", got " + outputs_[0].text());
  }
}

inline const Problem::Dims* Problem::bound(std::string_view dim) const {
  for (const auto& [name, dims] : dims_) {
    if (name == dim) return &dims;
  }
  return nullptr;
}

inline int64_t Problem::size(std::string_view dim) const {
  const Dims* dims = bound(dim);
  if (dims == nullptr) fail(TENON_E_INTERNAL, "no dim '" + std::string(dim) + "'");
  int64_t n = 1;
  for (int64_t d : *dims) n *= d;
  return n;
}

inline void check_indices(std::string_view kind, const char* operand, const int32_t* indices, int64_t count,
                          int64_t limit, Padding padding) {
  for (int64_t i = 0; i < count; ++i) {
    if (indices[i] < limit && (indices[i] >= 0 || padding == Padding::allowed)) continue;
    const std::string range = padding == Padding::allowed
                                  ? "below " + std::to_string(limit) + " (negative: padding)"
                                  : "0 to " + std::to_string(limit - 1);
    throw sdk::Failure(TENON_E_ARGUMENT, std::string(kind) + ": " + operand + ": token " + std::to_string(i) +
                                             " has index " + std::to_string(indices[i]) + ", must be " +
                                             range);
  }
}

inline double Problem::number(std::string_view attr) const {
  for (const auto& [name, option] : attrs_) {
    if (name == attr) return option.f;
  }
  fail(TENON_E_INTERNAL, "no attribute '" + std::string(attr) + "'");
}

inline std::vector<double> Problem::numbers() const {
  std::vector<double> out;
  for (const auto& [name, option] : attrs_) out.push_back(option.f);
  return out;
}

inline int64_t Problem::integer(std::string_view attr) const {
  for (const auto& [name, option] : attrs_) {
    if (name == attr) return option.i;
  }
  fail(TENON_E_INTERNAL, "no attribute '" + std::string(attr) + "'");
}

}  // namespace tenon::kernels
