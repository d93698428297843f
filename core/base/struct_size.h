// Sizes that foreign code states of its structs.
#pragma once

#include <cstdint>

namespace tenon {

// Whether a struct can have such a size: one that can not would end inside a member (abi/tenon/base.h), and
// half of a pointer is none.
constexpr bool is_struct_size(uint32_t size) { return size % 8 == 0; }

}  // namespace tenon
