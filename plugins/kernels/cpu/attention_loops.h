// Attention, forward and backward: blocks of kBlock queries meet runs of blocks of keys, with a running
// softmax from run to run. Blocks in which no query sees a key are left out, judged by positions.
#pragma once

#include "gemm_loops.h"
#include "loops.h"
#include "simd_math.h"

namespace tenon::kernels::cpu::TENON_ISA {
namespace {

template <class T>
struct Attention {
  using V = Vec<T>;
  using G = Gemm<T>;
  static constexpr T kMinus = static_cast<T>(-__builtin_inf());

  // Hands out pieces of the scratch, each aligned to 64 bytes.
  struct Scratch {
    T* at;
    T* take(int64_t elements) {
      T* piece = at;
      at += round_up(elements, kMaxLanes);
      return piece;
    }
  };

  struct Bounds {
    int32_t low, high;
  };
  static Bounds bounds_of(const int32_t* pos, int64_t n) {
    Bounds r{pos[0], pos[0]};
    for (int64_t i = 1; i < n; ++i) {
      r.low = pos[i] < r.low ? pos[i] : r.low;
      r.high = pos[i] > r.high ? pos[i] : r.high;
    }
    return r;
  }
  static int64_t part(int64_t total, int64_t begin) {
    return total - begin < kBlock ? total - begin : kBlock;
  }

  // Consecutive blocks of keys, at most kRun, of which the queries up to position `high` see something.
  struct Run {
    int64_t begin, end;  // keys; begin is a multiple of kBlock
    int64_t columns() const { return round_up(end - begin, kBlock); }
  };
  static bool visible(const AttentionArgs<T>& a, int64_t key, int32_t high) {
    return bounds_of(a.kpos + key, part(a.keys, key)).low <= high;
  }
  // The first run at or behind key `from`; empty at the end.
  static Run next_run(const AttentionArgs<T>& a, int64_t from, int32_t high) {
    while (from < a.keys && !visible(a, from, high)) from += kBlock;
    Run run{from, from};
    while (run.end < a.keys && run.end - run.begin < kRun && visible(a, run.end, high))
      run.end += part(a.keys, run.end);
    return run;
  }

  // Keys or values transposed, one [width][kBlock] panel per block, zero-padded.
  static void transpose(const T* x, int64_t stride, int64_t tokens, int64_t width, T* to) {
    for (int64_t j = 0; j < tokens; j += kBlock) {
      G::template pack<kBlock>(x + j * stride, stride, 1, to + j * width, part(tokens, j), width);
    }
  }

  // What groups of kGroup queries of a block see of a run: in its last block less and less at the diagonal,
  // of the blocks before that all. What a group sees, the groups behind it are taken to see too.
  static constexpr int64_t kGroup = kMaxRows;
  struct Seen {
    int64_t queries, before;             // before: keys in the blocks before the last
    int64_t keys[kBlock / kGroup] = {};  // of the run, from its beginning on

    Seen(const AttentionArgs<T>& a, const Run& run, int64_t query, int64_t n)
        : queries(n), before(run.columns() - kBlock) {
      int64_t most = before;
      for (int64_t g = 0; g < groups(); ++g) {
        const int32_t high = bounds_of(a.qpos + query + g * kGroup, rows(g)).high;
        int64_t end = run.end - run.begin;
        while (end > most && a.kpos[run.begin + end - 1] > high) --end;
        keys[g] = most = end;
      }
    }
    int64_t groups() const { return (queries + kGroup - 1) / kGroup; }
    int64_t rows(int64_t g) const { return queries - g * kGroup < kGroup ? queries - g * kGroup : kGroup; }
    // Whole vectors.
    int64_t columns(int64_t g) const { return round_up(keys[g], kMaxLanes); }
    // The first group that sees a key.
    int64_t first(int64_t key) const {
      int64_t g = 0;
      while (g < groups() && keys[g] <= key) ++g;
      return g;
    }
  };

  // out[n][kRun] = x y^T for the keys of a run that are seen; y as panels.
  static void scores(const Run& run, const Seen& seen, const T* x, int64_t ld, const T* panels, int64_t width,
                     T* out) {
    const auto block = [&](int64_t row, int64_t rows, int64_t key, int64_t columns) {
      G::template block<Order::row_major>(rows, columns,
                                          {width, x + row * ld, ld, panels + (run.begin + key) * width,
                                           kBlock, out + row * kRun + key, kRun, false});
    };
    for (int64_t key = 0; key < seen.before; key += kBlock) block(0, seen.queries, key, kBlock);
    for (int64_t g = 0; g < seen.groups(); ++g)
      block(g * kGroup, seen.rows(g), seen.before, seen.columns(g) - seen.before);
  }

  // out[n][ld] += x y over the keys that each query sees; y from the first key of the run on.
  static void add_seen(const Seen& seen, const T* x, const T* y, T* out, int64_t ld) {
    for (int64_t g = 0; g < seen.groups(); ++g) {
      G::template block<Order::row_major>(
          seen.rows(g), ld,
          {seen.keys[g], x + g * kGroup * kRun, kRun, y, ld, out + g * kGroup * ld, ld, true});
    }
  }

  // out[keys][ld] += x^T y over the queries that see each key.
  static void add_seeing(const Run& run, const Seen& seen, const T* x, const T* y, T* out, int64_t ld) {
    const auto block = [&](int64_t key, int64_t keys, int64_t query) {
      G::template block<Order::panel>(
          keys, ld,
          {seen.queries - query, x + query * kRun + key, kRun, y + query * ld, ld, out + key * ld, ld, true});
    };
    const int64_t end = run.end - run.begin;
    if (seen.before > 0) block(0, seen.before, 0);
    for (int64_t key = seen.before; key < end; key += kGroup) {
      const int64_t query = seen.first(key) * kGroup;
      if (query < seen.queries) block(key, end - key < kGroup ? end - key : kGroup, query);
    }
  }

  // Rows [n][ld], times factor, zero-padded to ld.
  static void rows(const T* x, int64_t stride, int64_t n, int64_t width, T factor, T* to, int64_t ld) {
    for (int64_t i = 0; i < n; ++i, x += stride, to += ld) {
      map<T>(
          width, to, [factor](V a) { return a * factor; }, x);
      for (int64_t d = width; d < ld; ++d) to[d] = 0;
    }
  }

  // Scores that must not count become -inf.
  static void mask(const AttentionArgs<T>& a, const Run& run, int64_t query, int64_t n, T* score) {
    const Bounds seen = bounds_of(a.qpos + query, n);
    for (int64_t j = run.begin; j < run.end; j += kBlock) {
      const int64_t keys = part(a.keys, j);
      if (keys == kBlock && bounds_of(a.kpos + j, keys).high <= seen.low) continue;
      for (int64_t i = 0; i < n; ++i) {
        const int32_t pos = a.qpos[query + i];
        T* row = score + i * kRun + (j - run.begin);
        for (int64_t k = 0; k < keys; ++k) row[k] = a.kpos[j + k] <= pos ? row[k] : kMinus;
        for (int64_t k = keys; k < kBlock; ++k) row[k] = kMinus;
      }
    }
  }

  static TENON_INLINE T row_max(const T* x, int64_t columns) {
    V top = load(x);
    for (int64_t j = kLanes<T>; j < columns; j += kLanes<T>) {
      const V a = load(x + j);
      top = a > top ? a : top;
    }
    return max_lanes<T>(top);
  }

  // A run of keys joins the running softmax: score becomes exp(score - max), out is rescaled.
  static void softmax_step(T* score, int64_t columns, int64_t queries, T* max, T* sum, T* out, int64_t ld) {
    if (columns == 0) return;
    for (int64_t i = 0; i < queries; ++i, score += kRun, out += ld) {
      const T before = max[i], run_max = row_max(score, columns), top = run_max > before ? run_max : before;
      const T base = top == kMinus ? T{0} : top;  // nothing seen yet: keep exp(-inf - base) a number
      V total{};
      for (int64_t j = 0; j < columns; j += kLanes<T>) {
        const V p = exp<T>(load(score + j) - base);
        store<T>(score + j, p);
        total += p;
      }
      max[i] = top;
      if (before == top || before == kMinus) {  // so far nothing, or nothing to rescale
        sum[i] += sum_lanes<T>(total);
        continue;
      }
      const T shrink = exp<T>(splat(before - base))[0];
      sum[i] = sum[i] * shrink + sum_lanes<T>(total);
      map<T>(
          ld, out, [shrink](V a) { return a * shrink; }, out);
    }
  }

  // A block of queries against all keys.
  struct Forward {
    const AttentionArgs<T>& a;
    int64_t ld;        // padded width
    T *keys, *values;  // transposed panels; padded rows
    T *query, *score, *out, *max, *sum;

    explicit Forward(const AttentionArgs<T>& args) : a(args), ld(round_up(args.width, kMaxLanes)) {
      Scratch scratch{a.scratch};
      const int64_t padded = round_up(a.keys, kBlock);
      keys = scratch.take(padded * a.width);
      values = scratch.take(a.keys * ld);
      query = scratch.take(kBlock * ld);
      score = scratch.take(kBlock * kRun);
      out = scratch.take(kBlock * ld);
      max = scratch.take(kBlock);
      sum = scratch.take(kBlock);
      transpose(a.k, a.k_stride, a.keys, a.width, keys);
      rows(a.v, a.k_stride, a.keys, a.width, T{1}, values, ld);
    }

    void block(int64_t begin) {
      const int64_t n = part(a.queries, begin);
      const int32_t high = bounds_of(a.qpos + begin, n).high;
      rows(a.q + begin * a.q_stride, a.q_stride, n, a.width, a.scale, query, ld);
      for (int64_t i = 0; i < n * ld; ++i) out[i] = 0;
      for (int64_t i = 0; i < n; ++i) {
        max[i] = kMinus;
        sum[i] = 0;
      }
      for (Run run = next_run(a, 0, high); run.begin < a.keys; run = next_run(a, run.end, high)) {
        const Seen seen(a, run, begin, n);
        scores(run, seen, query, ld, keys, a.width, score);
        mask(a, run, begin, n, score);
        for (int64_t g = 0; g < seen.groups(); ++g) {
          const int64_t i = g * kGroup;
          softmax_step(score + i * kRun, seen.columns(g), seen.rows(g), max + i, sum + i, out + i * ld, ld);
        }
        add_seen(seen, score, values + run.begin * ld, out, ld);
      }
      finish(begin, n);
    }

    void finish(int64_t begin, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        const T inverse = sum[i] == 0 ? T{0} : T{1} / sum[i];
        map<T>(
            a.width, a.o + (begin + i) * a.q_stride, [inverse](V x) { return x * inverse; }, out + i * ld);
        a.lse[begin + i] =
            sum[i] == 0 ? kMinus : static_cast<T>(max[i] + __builtin_log(static_cast<double>(sum[i])));
      }
    }
  };

  static void forward(const AttentionArgs<T>& args) {
    Forward pass(args);
    for (int64_t begin = 0; begin < args.queries; begin += kBlock) pass.block(begin);
  }

  // All query heads of one group, so that dk and dv are summed in a fixed order.
  struct Backward {
    const AttentionArgs<T>& a;
    int64_t ld;
    T *keys_t, *values_t, *keys, *dk, *dv;  // all keys
    T *query, *dout, *p, *ds, *dq, *delta;  // one block of queries

    explicit Backward(const AttentionArgs<T>& args) : a(args), ld(round_up(args.width, kMaxLanes)) {
      Scratch scratch{a.scratch};
      const int64_t padded = round_up(a.keys, kBlock);
      keys_t = scratch.take(padded * a.width);
      values_t = scratch.take(padded * a.width);
      keys = scratch.take(a.keys * ld);
      dk = scratch.take(a.keys * ld);
      dv = scratch.take(a.keys * ld);
      query = scratch.take(kBlock * ld);
      dout = scratch.take(kBlock * ld);
      p = scratch.take(kBlock * kRun);
      ds = scratch.take(kBlock * kRun);
      dq = scratch.take(kBlock * ld);
      delta = scratch.take(kBlock);
      transpose(a.k, a.k_stride, a.keys, a.width, keys_t);
      transpose(a.v, a.k_stride, a.keys, a.width, values_t);
      rows(a.k, a.k_stride, a.keys, a.width, T{1}, keys, ld);
      for (int64_t i = 0; i < a.keys * ld; ++i) dk[i] = dv[i] = 0;
    }

    void block(int64_t rep, int64_t begin) {
      const int64_t n = part(a.queries, begin), at = rep * a.width + begin * a.q_stride;
      const int32_t high = bounds_of(a.qpos + begin, n).high;
      const T* lse = a.lse + rep * a.queries + begin;
      rows(a.q + at, a.q_stride, n, a.width, a.scale, query, ld);
      rows(a.dout + at, a.q_stride, n, a.width, T{1}, dout, ld);
      for (int64_t i = 0; i < n; ++i) {
        delta[i] = reduce<T>(
            a.width, [](V x, V y) { return x * y; }, dout + i * ld, a.o + at + i * a.q_stride);
      }
      for (int64_t i = 0; i < n * ld; ++i) dq[i] = 0;
      for (Run run = next_run(a, 0, high); run.begin < a.keys; run = next_run(a, run.end, high)) {
        const int64_t first = run.begin * ld;
        const Seen seen(a, run, begin, n);
        scores(run, seen, query, ld, keys_t, a.width, p);
        mask(a, run, begin, n, p);
        scores(run, seen, dout, ld, values_t, a.width, ds);
        for (int64_t i = 0; i < n; ++i) probabilities(i, seen.columns(i / kGroup), lse[i]);
        add_seeing(run, seen, p, dout, dv + first, ld);
        add_seeing(run, seen, ds, query, dk + first, ld);
        add_seen(seen, ds, keys + first, dq, ld);
      }
      for (int64_t i = 0; i < n; ++i) {
        const T scale = a.scale;
        map<T>(
            a.width, a.dq + at + i * a.q_stride, [scale](V x) { return x * scale; }, dq + i * ld);
      }
    }

    // p = exp(score - lse), ds = p * (dp - delta). A query that sees nothing has lse = -inf, p = 0.
    void probabilities(int64_t i, int64_t columns, T lse) {
      const T base = lse == kMinus ? T{0} : lse, shift = delta[i];
      T *p_row = p + i * kRun, *ds_row = ds + i * kRun;
      for (int64_t j = 0; j < columns; j += kLanes<T>) {
        const V value = exp<T>(load(p_row + j) - base);
        store<T>(p_row + j, value);
        store<T>(ds_row + j, value * (load(ds_row + j) - shift));
      }
    }

    void finish() {
      for (int64_t j = 0; j < a.keys; ++j) {
        map<T>(
            a.width, a.dk + j * a.k_stride, [](V x) { return x; }, dk + j * ld);
        map<T>(
            a.width, a.dv + j * a.k_stride, [](V x) { return x; }, dv + j * ld);
      }
    }
  };

  static void backward(const AttentionArgs<T>& args) {
    Backward pass(args);
    for (int64_t rep = 0; rep < args.reps; ++rep) {
      for (int64_t begin = 0; begin < args.queries; begin += kBlock) pass.block(rep, begin);
    }
    pass.finish();
  }
};

}  // namespace
}  // namespace tenon::kernels::cpu::TENON_ISA
