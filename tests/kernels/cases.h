// Ready-made calls of every op kind with random operands that fit together.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "kernel_test.h"

namespace tenon::test {

struct Size {
  int64_t b, s, t, h, v, g, r, d;  // the letters of docs/reference/ops.md
};
std::string text(const Size& size);

// Odd and tiny sizes, and ones that reach every block and tile loop.
std::vector<Size> small_sizes();
std::vector<Size> large_sizes();

struct Case {
  std::string name;
  Op op;
};

// Elements [start, start + size) of a tensor along one dim.
Tensor slice(const Tensor& whole, size_t dim, int64_t start, int64_t size);

// Ops with gradients that no function of CaseMaker makes: of_signature() does.
std::vector<std::string> kinds_without_maker();
// Of which inputs of a forward op the outputs of its backward op are the gradients.
std::vector<size_t> gradients_of(const std::string& backward, const std::string& forward);

class CaseMaker {
 public:
  // `reference` computes operands that other ops make (mean, lse, o).
  CaseMaker(const Kernels& reference, uint32_t dtype, const Size& size, uint64_t seed);

  // All variants: accumulating, in place, padded, with shuffled positions.
  std::vector<Case> all();

  Tensor random(std::vector<int64_t> dims, double scale = 1);
  Tensor indices(std::vector<int64_t> dims, int64_t low, int64_t limit);
  Tensor targets(double padding);
  Tensor real(std::vector<int64_t> dims) const { return {dtype_, std::move(dims)}; }
  Tensor range(int64_t rows, int64_t n, int64_t start) const;  // [rows n] i32: start, start + 1, ...

  Op embedding();
  Op layernorm();
  Op rmsnorm();
  Op add_norm(const Op& norm);  // of layernorm() or rmsnorm(): with a sum in front
  Op linear();                  // x[b s h] w[g r d h]
  Op linear_structured();       // x[b s g d] w[h g d]
  Op bias_add();
  Op bias_gelu();
  Op rope(bool inverse);
  enum class Positions { causal, offset, shuffled, blind };
  Op attention(Positions positions);
  Op gelu();
  Op swiglu();
  Op dropout(double p);
  Op cross_entropy(double padding);
  Op linear_cross_entropy(double padding);  // x[b s g h] w[v g h]
  Op linear_cross_entropy_grad(const Op& forward) const;
  // Experts: v of them, at most 7. Tied: many logits are equal. One group per half sequence where that goes.
  enum class Logits { distinct, tied };
  Op route_topk(Logits logits, bool renormalise, double aux);
  Op dispatch();
  Op combine();
  Op grouped_linear();             // x[b 2 e t h] w[e g r d h]
  Op grouped_linear_structured();  // x[b 2 e t g d] w[e h g d]
  // Shards of what embedding() and cross_entropy() make: rows [start, start + rows) of the vocabulary.
  Op embedding_shard(int64_t start, int64_t rows);
  Op cross_entropy_shard(const Op& whole, int64_t start, int64_t rows) const;
  Op attention_merge();
  // Any kind of float operands whose dims are letters of Size; attributes are 1.5, or 1.
  Op of_signature(const std::string& kind);
  // The backward ops of a forward op, given the gradient of its output 0: those of inputs, then of weights.
  std::vector<Op> backward(const Op& forward, const Tensor& dy);

 private:
  void add_forward(std::vector<Case>& cases, const std::string& name, const Op& op);
  void add_plain(std::vector<Case>& cases, const std::string& name, const Op& op);
  void add_shape_ops(std::vector<Case>& cases);
  void add_fused(std::vector<Case>& cases);
  void add_sums(std::vector<Case>& cases);
  void add_shards(std::vector<Case>& cases);
  void add_experts(std::vector<Case>& cases);
  void add_others(std::vector<Case>& cases);
  // expert, slot of route_topk, and the shape of what dispatch makes of them.
  struct Routed {
    Tensor expert, slot;
    std::vector<int64_t> slots;  // [b n e c h]
    int64_t group;
  };
  Routed routed();

  const Kernels& reference_;
  uint32_t dtype_;
  Size n_;
  std::mt19937_64 rng_;
};

}  // namespace tenon::test
