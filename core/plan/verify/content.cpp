#include "plan/verify/content.h"

namespace tenon {

bool Content::operator==(const Content& other) const {
  const bool same = print == other.print && form == other.form && blocks == other.blocks;
  if (!same || (parts == nullptr) != (other.parts == nullptr)) return false;
  return parts == other.parts || *parts == *other.parts;
}

Print block_print(int64_t shift) { return PrintHash("block").add(static_cast<uint64_t>(shift)).print(); }

Print all_blocks(int64_t members) {
  Print out;
  for (int64_t shift = 0; shift < members; ++shift) out = out + block_print(shift);
  return out;
}

Print zeros_print() { return PrintHash("zeros").print(); }

Print plus(const Print& x, const Print& y, bool ordered) {
  return ordered ? PrintHash("plus").add(x).add(y).print() : x + y;
}

}  // namespace tenon
