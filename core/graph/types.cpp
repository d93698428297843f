#include "graph/types.h"

#include <array>

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
  return static_cast<int64_t>(std::get<double>(it->second));
}

}  // namespace tenon
