// dropout with counter-based random numbers (docs/reference/ops.md, "Dropout's random numbers").
#include <array>

#include "op.h"

namespace tenon::kernels::reference {
namespace {

using Words = std::array<uint32_t, 4>;

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
Words philox(Words counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0], b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(a)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

template <class T>
void dropout(const Call& call) {
  const int64_t batch = call.size("b"), length = call.size("s"), width = call.size("e..");
  const T* x = call.in<T>(0);
  const auto *sample = call.in<int64_t>(1), *step = call.in<int64_t>(3);
  const auto* pos = call.in<int32_t>(2);
  T* y = call.out<T>(0);
  const double p = call.number("p");
  const auto key = static_cast<uint64_t>(call.integer("key"));
  for (int64_t token = 0; token < batch * length; ++token) {
    const auto id = static_cast<uint64_t>(sample[token / length]);
    const uint64_t last = static_cast<uint64_t>(*step) + ((id >> 32 & 0xffff) << 16);
    for (int64_t j = 0; j < width; ++j) {
      const Words words = philox({static_cast<uint32_t>(j / 4), static_cast<uint32_t>(pos[token]),
                                  static_cast<uint32_t>(id), static_cast<uint32_t>(last)},
                                 static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
      const double u = words[static_cast<size_t>(j % 4)] * 0x1p-32;
      const int64_t i = token * width + j;
      y[i] = static_cast<T>(u >= p ? x[i] / (1 - p) : 0);
    }
  }
}

constexpr Entry kOps[] = {{"dropout", dropout<float>, dropout<double>}};

}  // namespace

std::span<const Entry> dropout_ops() { return kOps; }

}  // namespace tenon::kernels::reference
