// tenon_sdk/host_memory.hpp - memory of CPU devices: aligned to 64 bytes, zeroed, large blocks on huge pages.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tenon_sdk/plugin.hpp"

namespace tenon::kernels {

// Every byte is touched, so that the resident size is right from the start. Freed with std::free().
inline void* host_alloc(uint64_t bytes) {
  constexpr uint64_t kHuge = uint64_t{2} << 20;
  const uint64_t align = bytes >= 2 * kHuge ? kHuge : 64;
  const uint64_t rounded = bytes == 0 ? align : (bytes + align - 1) / align * align;
  void* block = rounded < bytes ? nullptr : std::aligned_alloc(align, rounded);
  if (block == nullptr) {
    throw sdk::Failure(TENON_E_MEMORY, "cannot allocate " + std::to_string(bytes) + " bytes of host memory");
  }
  if (align == kHuge) madvise(block, rounded, MADV_HUGEPAGE);  // advice only: failure costs speed
  std::memset(block, 0, rounded);
  return block;
}

}  // namespace tenon::kernels
