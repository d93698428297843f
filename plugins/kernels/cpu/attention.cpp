// attention, its gradient, and rotary positions.
#include <cmath>

#include "op.h"

namespace tenon::kernels::cpu {
namespace {

struct Sizes {
  int64_t batch, queries, keys, groups, reps, width;
  explicit Sizes(const Problem& p)
      : batch(p.size("b")),
        queries(p.size("s")),
        keys(p.size("t")),
        groups(p.size("g")),
        reps(p.size("r")),
        width(p.size("d")) {}
  int64_t heads() const { return batch * groups * reps; }
  int64_t key_heads() const { return batch * groups; }
};

// Heads that are worked on at once, each with scratch of its own.
constexpr int64_t kWorkers = 32;

// Runs body(head, scratch) for all heads. `products`: queries by keys, half of which are seen.
template <class T, class Body>
void each_head(const Call& call, int64_t heads, int64_t scratch, int products, Body&& body) {
  const Sizes n(call.problem);
  const double seen = static_cast<double>(n.heads() * n.queries) * static_cast<double>(n.keys) / 2;
  const auto run = [&](int64_t worker, int64_t head) {
    body(head, call.workspace<T>() + worker * round_up(scratch, kMaxLanes));
  };
  call.take(heads, kWorkers, run, seen * static_cast<double>(n.width) * products);
}

int64_t scratch_bytes(const Problem& problem, int64_t heads, int64_t scratch) {
  return std::min(kWorkers, heads) * round_up(scratch, kMaxLanes) * real_bytes(problem);
}

template <class T>
void attention(const Call& call) {
  const Sizes n(call.problem);
  each_head<T>(call, n.heads(), attention_scratch(n.keys, n.width), 2, [&](int64_t head, T* scratch) {
    const int64_t group = head / n.reps, b = group / n.groups, g = group % n.groups, r = head % n.reps;
    const int64_t q_stride = n.groups * n.reps * n.width, k_stride = n.groups * n.width;
    const int64_t q = b * n.queries * q_stride + (g * n.reps + r) * n.width;
    const int64_t k = b * n.keys * k_stride + g * n.width;
    call.loops<T>().attention({.queries = n.queries,
                               .keys = n.keys,
                               .reps = 1,
                               .width = n.width,
                               .q_stride = q_stride,
                               .k_stride = k_stride,
                               .scale = static_cast<T>(call.problem.number("scale")),
                               .qpos = call.in<int32_t>(3) + b * n.queries,
                               .kpos = call.in<int32_t>(4) + b * n.keys,
                               .q = call.in<T>(0) + q,
                               .k = call.in<T>(1) + k,
                               .v = call.in<T>(2) + k,
                               .o = call.out<T>(0) + q,
                               .lse = call.out<T>(1) + head * n.queries,
                               .dout = nullptr,
                               .dq = nullptr,
                               .dk = nullptr,
                               .dv = nullptr,
                               .scratch = scratch});
  });
}

template <class T>
void attention_dgrad(const Call& call) {
  const Sizes n(call.problem);
  each_head<T>(call, n.key_heads(), attention_dgrad_scratch(n.keys, n.width), 5,
               [&](int64_t group, T* scratch) {
                 const int64_t b = group / n.groups, g = group % n.groups;
                 const int64_t q_stride = n.groups * n.reps * n.width, k_stride = n.groups * n.width;
                 const int64_t q = b * n.queries * q_stride + g * n.reps * n.width;
                 const int64_t k = b * n.keys * k_stride + g * n.width;
                 // The slots `o` and `lse` are only read here.
                 call.loops<T>().attention_dgrad(
                     {.queries = n.queries,
                      .keys = n.keys,
                      .reps = n.reps,
                      .width = n.width,
                      .q_stride = q_stride,
                      .k_stride = k_stride,
                      .scale = static_cast<T>(call.problem.number("scale")),
                      .qpos = call.in<int32_t>(6) + b * n.queries,
                      .kpos = call.in<int32_t>(7) + b * n.keys,
                      .q = call.in<T>(1) + q,
                      .k = call.in<T>(2) + k,
                      .v = call.in<T>(3) + k,
                      .o = static_cast<T*>(call.pointers[4]) + q,
                      .lse = static_cast<T*>(call.pointers[5]) + group * n.reps * n.queries,
                      .dout = call.in<T>(0) + q,
                      .dq = call.out<T>(0) + q,
                      .dk = call.out<T>(1) + k,
                      .dv = call.out<T>(2) + k,
                      .scratch = scratch});
               });
}

// A table of sines and cosines.
int64_t rope_table(const Problem& p) { return round_up(p.size("d"), 8); }

template <class T>
void rope(const Call& call) {
  const int64_t tokens = call.size("b") * call.size("s"), heads = call.size("e.."), width = call.size("d");
  const double sign = call.problem.integer("inverse") != 0 ? -1 : 1;
  const auto* pos = call.in<int32_t>(1);
  call.take(tokens, kWorkers, [&](int64_t worker, int64_t t) {
    double* table = call.workspace<double>() + worker * rope_table(call.problem);
    const int64_t at = t * heads * width;
    call.loops<T>().rope(call.in<T>(0) + at, call.out<T>(0) + at, heads, width, sign * pos[t], call.state,
                         table);
  });
}

std::vector<double> rope_frequencies(const Problem& p) {
  const int64_t width = p.size("d");
  std::vector<double> frequency;
  for (int64_t i = 0; i < width / 2; ++i) {
    frequency.push_back(
        std::pow(p.number("theta"), -2.0 * static_cast<double>(i) / static_cast<double>(width)));
  }
  return frequency;
}

constexpr Entry kOps[] = {
    {"attention", attention<float>, attention<double>, nullptr, nullptr,
     [](const Problem& p) {
       const Sizes n(p);
       return scratch_bytes(p, n.heads(), attention_scratch(n.keys, n.width));
     }},
    {"attention_dgrad", attention_dgrad<float>, attention_dgrad<double>, nullptr, nullptr,
     [](const Problem& p) {
       const Sizes n(p);
       return scratch_bytes(p, n.key_heads(), attention_dgrad_scratch(n.keys, n.width));
     }},
    {"rope", rope<float>, rope<double>, nullptr, nullptr,
     [](const Problem& p) { return std::min(kWorkers, p.size("b") * p.size("s")) * rope_table(p) * 8; },
     rope_frequencies},
};

}  // namespace

std::span<const Entry> attention_ops() { return kOps; }

}  // namespace tenon::kernels::cpu
