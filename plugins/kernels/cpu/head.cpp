// linear_cross_entropy and its gradients: the logits of a vocabulary exist for a block of tokens at a time. A
// block is as long as what linear_wgrad adds up at once, so the bits are those of the single kernels.
#include "product.h"
#include "token_loss.h"

namespace tenon::kernels::cpu {
namespace {

struct Sizes {
  int64_t tokens, vocabulary, width, block;
  explicit Sizes(const Problem& p)
      : tokens(p.size("b") * p.size("s")),
        vocabulary(p.size("v")),
        width(p.size("k..")),
        block(sum_block(tokens)) {}
};

enum class Gradients { none, all };

// Of the products of a block of so many tokens.
int64_t block_bytes(const Problem& p, const Sizes& n, int64_t rows, Gradients gradients) {
  const int64_t forward = product_bytes(p, rows, n.vocabulary, n.width, false, true);
  if (gradients == Gradients::none) return forward;
  return std::max({forward, product_bytes(p, n.vocabulary, n.width, rows, true, false),
                   product_bytes(p, rows, n.width, n.vocabulary, false, false)});
}

int64_t aligned(int64_t bytes) { return round_up(bytes, 64); }

int64_t workspace_bytes(const Problem& p, Gradients gradients) {
  const Sizes n(p);
  return aligned(n.tokens * 8) + aligned(n.block * n.vocabulary * real_bytes(p)) +
         std::max(block_bytes(p, n, n.block, gradients), block_bytes(p, n, n.tokens % n.block, gradients));
}

template <class T>
class Head {
 public:
  Head(const Call& call, Gradients gradients)
      : call_(call),
        n_(call.problem),
        gradients_(gradients),
        x_(call.in<T>(0)),
        w_(call.in<T>(1)),
        targets_(call.in<int32_t>(2)),
        losses_(call.workspace<double>()) {
    char* at = call.workspace<char>() + aligned(n_.tokens * 8);
    logits_ = reinterpret_cast<T*>(at);
    scratch_ = reinterpret_cast<T*>(at + aligned(n_.block * n_.vocabulary * real_bytes(call.problem)));
  }

  void run() const {
    check_indices(call_.problem.kind(), "targets", targets_, n_.tokens, n_.vocabulary, Padding::allowed);
    if (gradients_ == Gradients::all && n_.tokens == 0) weight_gradient(0, 0);
    for (int64_t begin = 0; begin < n_.tokens; begin += n_.block) {
      const int64_t rows = std::min(n_.block, n_.tokens - begin);
      product<T>(call_, {rows, n_.vocabulary, n_.width, x_ + begin * n_.width, false, w_, true, logits_,
                         false, scratch_});
      losses(begin, rows);
      if (gradients_ == Gradients::none) continue;
      weight_gradient(begin, rows);
      product<T>(call_, {rows, n_.width, n_.vocabulary, logits_, false, w_, false,
                         call_.out<T>(3) + begin * n_.width, false, scratch_});
    }
    sum_losses(call_, losses_, targets_);
  }

 private:
  // Where gradients are wanted, they take the place of the logits.
  void losses(int64_t begin, int64_t rows) const {
    call_.rows(rows, n_.vocabulary, [&](int64_t row, int64_t count) {
      for (int64_t r = row; r < row + count; ++r) {
        T* logits = logits_ + r * n_.vocabulary;
        const int32_t target = targets_[begin + r];
        T lse;
        losses_[begin + r] = token_loss(call_, logits, n_.vocabulary, target, lse);
        if (gradients_ == Gradients::all) token_gradient(call_, logits, n_.vocabulary, target, lse, logits);
      }
    });
  }

  void weight_gradient(int64_t begin, int64_t rows) const {
    product<T>(call_, {n_.vocabulary, n_.width, rows, logits_, true, x_ + begin * n_.width, false,
                       call_.out<T>(2), begin > 0 || call_.problem.accumulate(), scratch_});
  }

  const Call& call_;
  const Sizes n_;
  const Gradients gradients_;
  const T *x_, *w_;
  const int32_t* targets_;
  double* losses_;
  T *logits_, *scratch_;
};

template <class T, Gradients kGradients>
void head(const Call& call) {
  Head<T>(call, kGradients).run();
}

template <Gradients kGradients>
int64_t workspace(const Problem& p) {
  return workspace_bytes(p, kGradients);
}

template <Gradients kGradients>
constexpr Entry entry(const char* kind) {
  return {kind, head<float, kGradients>, head<double, kGradients>, nullptr, nullptr, workspace<kGradients>};
}

constexpr Entry kOps[] = {entry<Gradients::none>("linear_cross_entropy"),
                          entry<Gradients::all>("linear_cross_entropy_grad")};

}  // namespace

std::span<const Entry> head_ops() { return kOps; }

}  // namespace tenon::kernels::cpu
