// The inner loops of every op, once per instruction set. A table is chosen when a device is opened.
// Every function works on one part of the data on the calling thread, and its bits depend on values and
// sizes alone: never on addresses. T is float or double.
#pragma once

#include <cstdint>

namespace tenon::kernels::cpu {

// Queries, keys and blocks of attention. One (batch, group, query head) for the forward pass, one
// (batch, group) for the backward pass.
template <class T>
struct AttentionArgs {
  int64_t queries, keys, reps, width;
  int64_t q_stride, k_stride;  // elements between two tokens
  T scale;
  const int32_t *qpos, *kpos;  // [queries], [keys]
  const T *q, *k, *v;          // at the first token of this head; query heads of a group are `width` apart
  T *o, *lse;                  // forward: written; backward: read. lse of query heads is `queries` apart
  const T* dout;               // backward only, as the rest
  T *dq, *dk, *dv;
  T* scratch;  // attention_scratch() or attention_dgrad_scratch() elements, aligned to 64 bytes
};

constexpr int64_t kBlock = 32;     // queries and keys of one block of attention
constexpr int64_t kRun = 256;      // keys whose scores lie side by side; a multiple of kBlock
constexpr int64_t kMaxLanes = 16;  // most elements of a vector
// Every panel of a packed operand of a product divides these.
constexpr int64_t kMaxRows = 8, kMaxCols = 48;

// Always inlined: a copy compiled for one instruction set must not serve the others.
__attribute__((always_inline)) inline int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

// Scratch in elements, enough for every instruction set, so that plans do not depend on the machine.
int64_t attention_scratch(int64_t keys, int64_t width);
int64_t attention_dgrad_scratch(int64_t keys, int64_t width);

// C[m,n] = A B, or += where add. A[m,k] is row-major, or as pack_rows() leaves it where lda is 0; B[k,n]
// likewise, with pack_columns(), and where it is not packed, n is a multiple of kMaxLanes. C is row-major.
template <class T>
struct ProductArgs {
  int64_t m, n, k;
  const T* a;
  int64_t lda;
  const T* b;
  int64_t ldb;
  T* c;
  int64_t ldc;
  bool add;
};

// An op on n elements of each operand, given the op's attributes; see elementwise_loops.h.
template <class T>
struct ElementLoop {
  const char* kind;
  void (*run)(const T* const* in, T* const* out, const T* attrs, int64_t n);
};

// Rows are `width` elements apart; with `add` results are added to what is there. y may be x where the op can
// run in place.
template <class T>
struct Loops {
  void (*layernorm)(const T* x, const T* w, const T* b, T* y, T* mean, T* rstd, int64_t rows, int64_t width,
                    double eps);
  void (*layernorm_dgrad)(const T* dy, const T* x, const T* w, const T* mean, const T* rstd, T* dx,
                          int64_t rows, int64_t width, bool add);
  // dw and db [width] are overwritten with the sum over these rows.
  void (*layernorm_wgrad)(const T* dy, const T* x, const T* mean, const T* rstd, T* dw, T* db, int64_t rows,
                          int64_t width);
  void (*rmsnorm)(const T* x, const T* w, T* y, T* rstd, int64_t rows, int64_t width, double eps);
  void (*rmsnorm_dgrad)(const T* dy, const T* x, const T* w, const T* rstd, T* dx, int64_t rows,
                        int64_t width, bool add);
  void (*rmsnorm_wgrad)(const T* dy, const T* x, const T* rstd, T* dw, int64_t rows, int64_t width);
  void (*bias_add)(const T* x, const T* bias, T* y, int64_t rows, int64_t width);
  void (*sum_rows)(const T* x, T* sum, int64_t rows, int64_t width);
  // y[i] (+)= sum over parts of x[part * stride + i], in order.
  void (*combine)(const T* x, T* y, int64_t parts, int64_t stride, int64_t n, bool add);
  void (*add)(const T* x, const T* y, T* z, int64_t n);
  double (*sqnorm)(const T* x, int64_t n);
  // One token: heads rows of `width`, turned by pos * frequency[i], i < width / 2.
  // table: `width` doubles of scratch.
  void (*rope)(const T* x, T* y, int64_t heads, int64_t width, double pos, const double* frequency,
               double* table);
  // Elements of one token, counter (j / 4, pos, sample, last); dropped where the random word < threshold.
  void (*dropout)(const T* x, T* y, int64_t n, const uint32_t counter[3], uint64_t key, uint64_t threshold,
                  T scale);
  // Log of the sum of exponentials of one row.
  double (*logsumexp)(const T* x, int64_t n);
  // dx = exp(x - lse); the caller subtracts the one-hot target.
  void (*softmax)(const T* x, T lse, T* dx, int64_t n);
  void (*attention)(const AttentionArgs<T>& args);
  void (*attention_dgrad)(const AttentionArgs<T>& args);
  // Packs the operands of product(). A: m rows, element (i, p) from from[p * ld + i], to m rounded up to
  // kMaxRows times depth elements. B: n columns, element (p, j) from from[p * row + j * col], one of which is
  // 1, to n rounded up to kMaxCols times depth.
  void (*pack_rows)(const T* from, int64_t ld, T* to, int64_t m, int64_t depth);
  void (*pack_columns)(const T* from, int64_t row, int64_t col, T* to, int64_t n, int64_t depth);
  void (*product)(const ProductArgs<T>& args);
  // Ops that compute each element by itself, the same kinds in every table.
  const ElementLoop<T>* elementwise;
  int64_t num_elementwise;
};

struct LoopTable {
  const char* isa;
  Loops<float> f32;
  Loops<double> f64;
};
template <class T>
const Loops<T>& loops_of(const LoopTable& table) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return table.f32;
  } else {
    return table.f64;
  }
}

// For any machine.
extern const LoopTable kBaseline;
// The table named "avx512", "avx2" or "baseline", or the best one for "auto". Throws sdk::Failure
// TENON_E_UNSUPPORTED where the machine lacks the instructions.
const LoopTable& select_loops(const char* isa);

}  // namespace tenon::kernels::cpu
