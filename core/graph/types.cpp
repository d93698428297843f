#include "graph/types.h"

#include <array>
#include <cmath>

namespace tenon {
namespace {

constexpr std::array<DtypeInfo, 7> kDtypes{{
    {Dtype::f64, "f64", 8},
    {Dtype::f32, "f32", 4},
    {Dtype::bf16, "bf16", 2},
    {Dtype::f16, "f16", 2},
    {Dtype::i64, "i64", 8},
    {Dtype::i32, "i32", 4},
    {Dtype::u8, "u8", 1},
}};

}  // namespace

const DtypeInfo& dtype_info(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)]; }

int64_t elements(const Dims& dims) {
  int64_t n = 1;
  for (const Dim& dim : dims) n *= dim.size;
  return n;
}

bool fits(const Dims& dims) {
  int64_t left = kMaxElements;
  for (const Dim& dim : dims) {
    if (dim.size > left) return false;
    left /= dim.size;
  }
  return true;
}

std::string text(const Dims& dims) {
  std::string out = "[";
  for (const Dim& dim : dims) {
    if (out.size() > 1) out += ", ";
    out += dim.name + " " + std::to_string(dim.size);
  }
  return out + "]";
}

int64_t attr_int(const Attrs& attrs, std::string_view key, int64_t fallback) {
  const auto it = attrs.find(key);
  if (it == attrs.end()) return fallback;
  if (const auto* i = std::get_if<int64_t>(&it->second)) return *i;
  const double number = std::get<double>(it->second);
  // Beyond int64 the conversion would be undefined; a size of 0 is refused where sizes are checked.
  return std::abs(number) < 0x1p63 ? static_cast<int64_t>(number) : 0;
}

}  // namespace tenon
