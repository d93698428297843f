// Philox, Box-Muller with our own logarithm and sine, and the Feistel permutation. A contracted multiply-add
// would change bits between machines, so contraction is off; before the includes, so that what they define
// inlines here.
#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

#include "base/rng.h"

#include <bit>
#include <cmath>
#include <numbers>

namespace tenon {
namespace {

// The last word of the counter says what the numbers are for: the sequences of one key do not overlap.
constexpr uint32_t kForUniform = 1;
constexpr uint32_t kForNormal = 2;
constexpr uint32_t kForPermutation = 3;

constexpr int kPhiloxRounds = 10;
constexpr uint32_t kFeistelRounds = 12;

struct Bits {
  uint64_t first;
  uint64_t second;
};

Bits bits_of_block(uint64_t key, uint64_t block, uint32_t purpose) {
  const PhiloxBlock r =
      philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, purpose}, key);
  return {r[0] | static_cast<uint64_t>(r[1]) << 32, r[2] | static_cast<uint64_t>(r[3]) << 32};
}

double unit(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// c[0] + z * (c[1] + z * (...))
template <size_t N>
double polynomial(const std::array<double, N>& c, double z) {
  double sum = c[N - 1];
  for (size_t i = N - 1; i-- > 0;) sum = c[i] + z * sum;
  return sum;
}

// ln(x) for normal x > 0: x = 2^e * m with m in [sqrt(1/2), sqrt(2)], ln(m) = 2 atanh((m - 1) / (m + 1)).
double natural_log(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL);
  if (m > std::numbers::sqrt2) {
    m *= 0.5;
    ++exponent;
  }
  static constexpr std::array<double, 10> kAtanh = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11,
                                                    1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21};
  constexpr double kLn2High = 0x1.62e42feep-1;  // 32 bits: times any exponent it is exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  const double tail = 2.0 * s * z * polynomial(kAtanh, z);
  return exponent * kLn2High + (2.0 * s + (tail + exponent * kLn2Low));
}

struct Point {
  double cos;
  double sin;
};

// The point of the unit circle at `turn` turns, turn in [0, 1): reduced to an eighth of a turn around a
// quadrant.
Point circle(double turn) {
  static constexpr std::array<double, 9> kSin = {1.0,
                                                 -1.0 / 6,
                                                 1.0 / 120,
                                                 -1.0 / 5040,
                                                 1.0 / 362880,
                                                 -1.0 / 39916800,
                                                 1.0 / 6227020800,
                                                 -1.0 / 1307674368000,
                                                 1.0 / 355687428096000};
  static constexpr std::array<double, 9> kCos = {1.0,
                                                 -1.0 / 2,
                                                 1.0 / 24,
                                                 -1.0 / 720,
                                                 1.0 / 40320,
                                                 -1.0 / 3628800,
                                                 1.0 / 479001600,
                                                 -1.0 / 87178291200,
                                                 1.0 / 20922789888000};
  const double quarters = 4.0 * turn;
  const int quadrant = static_cast<int>(std::lround(quarters));
  const double angle = (quarters - quadrant) * (std::numbers::pi / 2);
  const double z = angle * angle;
  const double s = angle * polynomial(kSin, z);
  const double c = polynomial(kCos, z);
  switch (quadrant & 3) {
    case 0: return {c, s};
    case 1: return {-s, c};
    case 2: return {-c, -s};
    default: return {s, -c};
  }
}

struct Pair {
  double first;
  double second;
};

Pair uniform_pair(uint64_t key, uint64_t block) {
  const Bits bits = bits_of_block(key, block, kForUniform);
  return {unit(bits.first), unit(bits.second)};
}

Pair normal_pair(uint64_t key, uint64_t block) {
  const Bits bits = bits_of_block(key, block, kForNormal);
  const double radius = std::sqrt(-2.0 * natural_log(unit(bits.first) + 0x1p-53));  // of (0, 1]
  const Point p = circle(unit(bits.second));
  return {radius * p.cos, radius * p.sin};
}

// Element i is half i % 2 of block i / 2, wherever the slice begins.
template <class T, class MakePair, class Map>
void fill(uint64_t first, std::span<T> out, MakePair make_pair, Map map) {
  size_t i = 0;
  if (first % 2 == 1 && !out.empty()) out[i++] = map(make_pair(first / 2).second);
  for (; i < out.size(); i += 2) {
    const Pair pair = make_pair((first + i) / 2);
    out[i] = map(pair.first);
    if (i + 1 < out.size()) out[i + 1] = map(pair.second);
  }
}

template <class T>
void fill_uniform_as(uint64_t key, int64_t first, std::span<T> out, double low, double high) {
  const double width = high - low;
  T top = static_cast<T>(high);
  if (static_cast<double>(top) >= high) top = std::nextafter(top, static_cast<T>(low));
  fill(
      static_cast<uint64_t>(first), out, [key](uint64_t block) { return uniform_pair(key, block); },
      [low, width, top](double u) {
        const T value = static_cast<T>(low + width * u);
        return value > top ? top : value;
      });
}

template <class T>
void fill_normal_as(uint64_t key, int64_t first, std::span<T> out, double std) {
  fill(
      static_cast<uint64_t>(first), out, [key](uint64_t block) { return normal_pair(key, block); },
      [std](double z) { return static_cast<T>(std * z); });
}

}  // namespace

PhiloxBlock philox4x32(const PhiloxBlock& counter, uint64_t key) {
  PhiloxBlock x = counter;
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * x[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * x[2];
    x = {static_cast<uint32_t>(b >> 32) ^ x[1] ^ k0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ x[3] ^ k1, static_cast<uint32_t>(a)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return x;
}

double uniform_at(uint64_t key, uint64_t index) {
  const Pair pair = uniform_pair(key, index / 2);
  return index % 2 == 0 ? pair.first : pair.second;
}

double normal_at(uint64_t key, uint64_t index) {
  const Pair pair = normal_pair(key, index / 2);
  return index % 2 == 0 ? pair.first : pair.second;
}

void fill_uniform(uint64_t key, int64_t first_index, std::span<double> out, double low, double high) {
  fill_uniform_as(key, first_index, out, low, high);
}

void fill_uniform(uint64_t key, int64_t first_index, std::span<float> out, double low, double high) {
  fill_uniform_as(key, first_index, out, low, high);
}

void fill_normal(uint64_t key, int64_t first_index, std::span<double> out, double std) {
  fill_normal_as(key, first_index, out, std);
}

void fill_normal(uint64_t key, int64_t first_index, std::span<float> out, double std) {
  fill_normal_as(key, first_index, out, std);
}

Permutation::Permutation(uint64_t n, uint64_t key) : size_(n), key_(key) {
  const int bits = n > 1 ? std::bit_width(n - 1) : 0;
  low_bits_ = static_cast<uint32_t>((bits + 1) / 2);
  low_mask_ = static_cast<uint32_t>((uint64_t{1} << low_bits_) - 1);
  high_mask_ = static_cast<uint32_t>((uint64_t{1} << (static_cast<uint32_t>(bits) - low_bits_)) - 1);
}

// Each round changes one half by a function of the other, which can be undone: hence a bijection.
uint64_t Permutation::scramble(uint64_t i) const {
  uint32_t low = static_cast<uint32_t>(i) & low_mask_;
  uint32_t high = static_cast<uint32_t>(i >> low_bits_) & high_mask_;
  for (uint32_t round = 0; round < kFeistelRounds; round += 2) {
    high ^= philox4x32({low, round, 0, kForPermutation}, key_)[0] & high_mask_;
    low ^= philox4x32({high, round + 1, 0, kForPermutation}, key_)[0] & low_mask_;
  }
  return static_cast<uint64_t>(high) << low_bits_ | low;
}

uint64_t Permutation::operator()(uint64_t i) const {
  if (i >= size_) return i;
  // The walk follows the cycle of i, which returns to i itself: it ends.
  do {
    i = scramble(i);
  } while (i >= size_);
  return i;
}

}  // namespace tenon
