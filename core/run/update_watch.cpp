#include "run/update_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/hash.h"

namespace tenon {
namespace {

// A rule may scale an update down (LARS and LAMB by the norm of the parameter): this much is left to it.
constexpr double kSurely = 1000;
constexpr uint64_t kLooks = 16;  // at the elements of a piece
// Of statistics: NaN, which stays what it is when something is added to it, and which no computation makes.
constexpr uint64_t kLeft = 0x7ff8'a5a5'a5a5'a5a5;

template <class T>
T load(const char* at) {
  T out;
  std::memcpy(&out, at, sizeof out);
  return out;
}

bool is_known(Dtype dtype) { return dtype == Dtype::f32 || dtype == Dtype::f64; }
double value_of(const char* at, Dtype dtype) {
  return dtype == Dtype::f64 ? load<double>(at) : static_cast<double>(load<float>(at));
}

// How far the next number is.
template <class T>
double gap(T value) {
  const T size = std::abs(value);
  return static_cast<double>(std::nextafter(size, std::numeric_limits<T>::infinity()) - size);
}
double gap_of(const char* at, Dtype dtype) {
  return dtype == Dtype::f64 ? gap(load<double>(at)) : gap(load<float>(at));
}

}  // namespace

void UpdateWatch::add_held(const void* base, Dtype dtype, uint64_t count) {
  held_.emplace_back(static_cast<const std::byte*>(base), count * static_cast<uint64_t>(size_of(dtype)));
}

uint64_t UpdateWatch::digest() const {
  std::vector<uint64_t> digests;
  for (const auto& bytes : held_) digests.push_back(xxh3_64(bytes));
  return xxh3_64(std::as_bytes(std::span(digests)));
}

void UpdateWatch::add(const tenon_update& piece, const OptimizerDeclaration& declaration) {
  const auto dtype = static_cast<Dtype>(piece.dtype);
  const uint64_t looks = is_known(dtype) ? std::min(piece.count, kLooks) : 0;
  for (uint64_t i = 0; i < looks; ++i) {  // from the first element to the last
    const uint64_t index = looks == 1 ? 0
                                      : i * ((piece.count - 1) / (looks - 1)) +
                                            i * ((piece.count - 1) % (looks - 1)) / (looks - 1);
    const uint64_t offset = index * static_cast<uint64_t>(size_of(dtype));
    looks_.push_back({static_cast<const char*>(piece.param) + offset,
                      static_cast<const char*>(piece.grad) + offset, dtype, piece.name, piece.first + index});
  }
  add_held(piece.param, dtype, piece.count);
  for (size_t s = 0; s < declaration.slots.size(); ++s)
    add_held(piece.slots[s], declaration.slots[s].dtype_for(dtype), piece.count);
  if (piece.stats == nullptr) return;
  for (uint32_t k = 0; k < declaration.num_stats; ++k) stats_.push_back({piece.stats + k, piece.name});
}

void UpdateWatch::before_step(const tenon_step_scalars& scalars) {
  must_move_ = false;
  before_ = digest();
  for (Look& look : looks_) {
    const char* const at = look.param;
    const double grad = std::abs(value_of(look.grad, look.dtype) * scalars.grad_scale);
    look.is_number = std::isfinite(grad) && std::isfinite(value_of(at, look.dtype));
    if (!look.is_number) continue;
    // As far as rules go that follow the gradient, and those that follow its sign.
    const double way = std::abs(scalars.lr) * std::min(grad, 1.0);
    must_move_ = must_move_ || way > kSurely * gap_of(at, look.dtype);
  }
}

Status UpdateWatch::after_step() {
  moved_ = digest() != before_;
  for (const Look& look : looks_) {
    const double value = value_of(look.param, look.dtype);
    if (!look.is_number || std::isfinite(value)) continue;
    return Error{"N002",
                 fmt::format("the update made {} of element {} of {}, which was a number, as its gradient is",
                             value, look.index, look.name),
                 "step", "lower the learning rate, or correct the plugin", TENON_E_STATE};
  }
  return {};
}

void UpdateWatch::before_stats() {
  for (const Stat& stat : stats_) std::memcpy(stat.at, &kLeft, sizeof kLeft);
}

Status UpdateWatch::after_stats() const {
  for (const Stat& stat : stats_) {
    if (std::memcmp(stat.at, &kLeft, sizeof kLeft) != 0) continue;
    return Error{"N002", fmt::format("a statistic of {} was left unwritten, or added to", stat.name), "stats",
                 "correct the plugin", TENON_E_STATE};
  }
  return {};
}

Error nothing_moved(int64_t step, double lr) {
  return Error{
      "N002",
      fmt::format("step {}: the update changed nothing: not a bit of the parameters and of its state, where "
                  "gradients are not zero and the learning rate is {}",
                  step, lr),
      "step", "correct the plugin", TENON_E_STATE};
}

}  // namespace tenon
