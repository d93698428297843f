#include "run/output_watch.h"

#include <algorithm>
#include <cstring>

#include "run/device.h"

namespace tenon {
namespace {

constexpr uint64_t kLooks = 16;

bool is_real(Dtype dtype) { return dtype == Dtype::f32 || dtype == Dtype::f64; }

// No computation makes a NaN of these bits but from another one.
bool is_spoilt(const char* at, uint64_t bytes) {
  return std::all_of(at, at + bytes, [](char c) { return static_cast<unsigned char>(c) == kNoNumber; });
}

}  // namespace

bool is_made_anew(const Instr& kernel, size_t index, std::span<void* const> pointers) {
  const Operand& out = kernel.out[index];
  if (kernel.accumulate || !is_real(out.dtype) || out.bytes() == 0) return false;
  const auto* const first = static_cast<const char*>(pointers[kernel.in.size() + index]);
  for (size_t i = 0; i < kernel.in.size() + kernel.out.size(); ++i) {
    if (i == kernel.in.size() + index) continue;
    const Operand& other = i < kernel.in.size() ? kernel.in[i] : kernel.out[i - kernel.in.size()];
    const auto* const at = static_cast<const char*>(pointers[i]);
    if (at < first + out.bytes() && first < at + other.bytes()) return false;
  }
  return true;
}

void spoil(std::span<const WatchedOutput> outputs) {
  for (const WatchedOutput& out : outputs) std::memset(out.at, kNoNumber, out.bytes);
}

const WatchedOutput* left_unwritten(std::span<const WatchedOutput> outputs) {
  const auto is_left = [](const WatchedOutput& out) {
    constexpr uint64_t kWord = 4;  // elements have one or two of them
    const uint64_t words = out.bytes / kWord, step = std::max<uint64_t>(1, words / kLooks);
    for (uint64_t word = 0; word < words; word += step)
      if (!is_spoilt(out.at + word * kWord, kWord)) return false;
    return is_spoilt(out.at + (words - 1) * kWord, kWord);
  };
  const auto left = std::ranges::find_if(outputs, is_left);
  return left == outputs.end() ? nullptr : &*left;
}

}  // namespace tenon
