#include "run/output_watch.h"

#include <algorithm>

namespace tenon {
namespace {

// Quiet NaNs, other than those of the arena and those that arithmetic makes.
constexpr uint32_t kLeft32 = 0x7ffa'5a5a;
constexpr uint64_t kLeft64 = 0x7ffa'5a5a'7ffa'5a5a;

template <class Word>
std::span<Word> words(const WatchedOutput& out) {
  return {reinterpret_cast<Word*>(out.at), out.bytes / sizeof(Word)};
}

template <class Word>
std::optional<uint64_t> find(const WatchedOutput& out, Word left) {
  const auto all = words<Word>(out);
  const auto found = std::ranges::find(all, left);
  if (found == all.end()) return std::nullopt;
  return static_cast<uint64_t>(found - all.begin());
}

}  // namespace

bool is_made_anew(const Instr& kernel, size_t index, std::span<void* const> pointers) {
  const Operand& out = kernel.out[index];
  if (kernel.accumulate || (out.dtype != Dtype::f32 && out.dtype != Dtype::f64)) return false;
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
  for (const WatchedOutput& out : outputs) {
    if (out.dtype == Dtype::f64)
      std::ranges::fill(words<uint64_t>(out), kLeft64);
    else
      std::ranges::fill(words<uint32_t>(out), kLeft32);
  }
}

std::optional<UnwrittenElement> left_unwritten(std::span<const WatchedOutput> outputs) {
  for (const WatchedOutput& out : outputs) {
    const auto element = out.dtype == Dtype::f64 ? find(out, kLeft64) : find(out, kLeft32);
    if (element) return UnwrittenElement{out, *element};
  }
  return std::nullopt;
}

}  // namespace tenon
