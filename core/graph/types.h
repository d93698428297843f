// Element types, named dims and attributes: the small values that graphs are made of.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/shared.h"

namespace tenon {

enum class Dtype : uint32_t {
  f64 = TENON_F64,
  f32 = TENON_F32,
  bf16 = TENON_BF16,
  f16 = TENON_F16,
  i64 = TENON_I64,
  i32 = TENON_I32,
  u8 = TENON_U8,
};

struct DtypeInfo {
  Dtype dtype;
  const char* name;
  int64_t bytes;
};
const DtypeInfo& dtype_info(Dtype dtype);
inline int64_t size_of(Dtype dtype) { return dtype_info(dtype).bytes; }
inline const char* name_of(Dtype dtype) { return dtype_info(dtype).name; }

// A dimension keeps its name ("batch", "seq", "hidden", "head") so that strategies can find it.
struct Dim {
  std::string name;
  int64_t size = 0;
  bool operator==(const Dim&) const = default;
};
using Dims = std::vector<Dim>;

// Keeps bytes, and sums over thousands of values, inside int64_t.
constexpr int64_t kMaxElements = int64_t{1} << 48;
int64_t elements(const Dims& dims);
// Whether the sizes, all at least 1, multiply to kMaxElements at most.
bool fits(const Dims& dims);
std::string text(const Dims& dims);  // "[batch 8, seq 32]"

using Attr = std::variant<int64_t, double>;
using Attrs = std::map<std::string, Attr, std::less<>>;
// Of an op, and of all instructions that come of it.
class SharedAttrs : public Shared<Attrs> {
 public:
  using Shared::Shared;
  SharedAttrs(std::initializer_list<Attrs::value_type> attrs) : Shared(Attrs(attrs)) {}
  SharedAttrs with(const std::string& name, Attr value) const {
    Attrs out = get();
    out[name] = value;
    return out;
  }
};
int64_t attr_int(const Attrs& attrs, std::string_view key, int64_t fallback = 0);

using ValueId = uint32_t;
using OpId = uint32_t;
constexpr uint32_t kNone = UINT32_MAX;

}  // namespace tenon
