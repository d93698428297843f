#include "plan/fuse.h"

#include <algorithm>
#include <optional>
#include <span>

namespace tenon {
namespace {

using Window = std::span<const Instr* const>;  // neighbours on the compute lane

struct Rule {
  std::vector<const char*> kinds;
  // The one instruction that does the same; none where the operands are not connected as it needs.
  std::optional<Instr> (*merge)(Window);
};

bool same(const Operand& a, const Operand& b) { return a.buffer == b.buffer && a.offset == b.offset; }

// z = x + y and the norm of z. Both are results: the residual stream goes on with z.
std::optional<Instr> add_norm(Window window) {
  const Instr &add = *window[0], &norm = *window[1];
  if (!same(add.out[0], norm.in[0])) return std::nullopt;
  Instr out = norm;
  out.kind = "add_" + norm.kind;
  out.in = add.in;
  out.in.insert(out.in.end(), norm.in.begin() + 1, norm.in.end());
  out.out = add.out;
  out.out.insert(out.out.end(), norm.out.begin(), norm.out.end());
  out.inplace = add.inplace;
  return out;
}

// z = x + bias and its activation. Both are results: the gradient starts from z.
std::optional<Instr> bias_gelu(Window window) {
  const Instr &bias = *window[0], &gelu = *window[1];
  if (!same(bias.out[0], gelu.in[0])) return std::nullopt;
  Instr out = bias;
  out.kind = "bias_gelu";
  out.out.push_back(gelu.out[0]);
  return out;
}

// A gradient that is added to one that is there: the kernel adds it itself.
std::optional<Instr> accumulate(Window window) {
  const Instr &kernel = *window[0], &add = *window[1];
  const Operand& sum = add.in[0];
  if (add.inplace != 0 || kernel.accumulate || !same(kernel.out[0], add.in[1])) return std::nullopt;
  const bool reads_sum = std::ranges::count(kernel.in, sum.buffer, &Operand::buffer) > 0;
  if (reads_sum || same(kernel.out[0], sum)) return std::nullopt;
  Instr out = kernel;
  out.out = add.out;
  out.accumulate = true;
  return out;
}

// The vocabulary's logits and their loss.
std::optional<Instr> head_loss(Window window) {
  const Instr &linear = *window[0], &loss = *window[1];
  const size_t dims = linear.in[1].dims.size() + 2 - linear.in[0].dims.size();
  if (!same(linear.out[0], loss.in[0]) || dims != 1) return std::nullopt;
  Instr out = loss;
  out.kind = "linear_cross_entropy";
  out.in = {linear.in[0], linear.in[1], loss.in[1]};
  out.out = {loss.out[0], loss.out[1]};
  return out;
}

// That and the gradients: as the loss is what they start from, nothing has to be kept for them.
std::optional<Instr> head_gradients(Window window) {
  const Instr &linear = *window[0], &logits = *window[2], &weight = *window[3], &input = *window[4];
  std::optional<Instr> out = head_loss(window.first(2));
  const bool joined = same(logits.in[0], linear.out[0]) && same(weight.in[0], logits.out[0]) &&
                      same(input.in[0], logits.out[0]) && same(weight.in[1], linear.in[0]) &&
                      same(input.in[1], linear.in[1]) && !input.accumulate;
  if (!out || !joined) return std::nullopt;
  out->kind = "linear_cross_entropy_grad";
  out->phase = Phase::weight_grad;
  out->out.push_back(weight.out[0]);
  out->out.push_back(input.out[0]);
  out->accumulate = weight.accumulate;
  return out;
}

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all{
      {{"linear", "cross_entropy", "cross_entropy_dgrad", "linear_wgrad", "linear_dgrad"}, head_gradients},
      {{"linear", "cross_entropy"}, head_loss},
      {{"add", "layernorm"}, add_norm},
      {{"add", "rmsnorm"}, add_norm},
      {{"bias_add", "gelu"}, bias_gelu},
      {{"linear_dgrad", "add"}, accumulate},
      {{"layernorm_dgrad", "add"}, accumulate},
      {{"rmsnorm_dgrad", "add"}, accumulate},
  };
  return all;
}

// Calls visit(operand) for all that an instruction reads or writes.
template <class Visit>
void each_operand(const Instr& instr, Visit visit) {
  for (const auto* operands : {&instr.in, &instr.out}) {
    for (const Operand& operand : *operands) visit(operand);
  }
}

bool mentions(const Instr& instr, BufferId buffer) {
  bool found = false;
  each_operand(instr, [&](const Operand& operand) { found |= operand.buffer == buffer; });
  return found;
}

bool share_memory(const Instr& a, const Instr& b) {
  bool found = false;
  each_operand(a, [&](const Operand& operand) { found |= mentions(b, operand.buffer); });
  return found;
}

class Fuser {
 public:
  Fuser(Program& program, const HasKernel& has_kernel)
      : program_(program), has_kernel_(has_kernel), uses_(program.buffers.size()) {
    const auto count = [this](const Operand& operand) {
      if (operand.buffer != kNone) ++uses_[operand.buffer];
    };
    for (const Instr& instr : program.instrs) each_operand(instr, count);
    for (const auto& [name, operand] : program.outputs) count(operand);
  }

  void run() {
    std::vector<Instr> out;
    out.reserve(program_.instrs.size());
    for (size_t i = 0; i < program_.instrs.size();) {
      std::optional<Match> match = match_at(i);
      if (!match) {
        out.push_back(std::move(program_.instrs[i++]));
        continue;
      }
      out.push_back(std::move(match->fused));
      for (size_t between : match->between) out.push_back(std::move(program_.instrs[between]));
      i = match->end;
    }
    program_.instrs = std::move(out);
  }

 private:
  struct Match {
    Instr fused;
    std::vector<size_t> between;  // instructions that come behind it now
    size_t end = 0;
  };

  // Transfers, and sums over microbatches.
  static bool can_wait(const Instr& instr) { return instr.lane != 0 || instr.kind == "add"; }

  std::optional<Match> match_at(size_t first) const {
    for (const Rule& rule : rules()) {
      if (program_.instrs[first].kind != rule.kinds[0]) continue;
      if (std::optional<Match> match = match_rule(rule, first)) return match;
    }
    return std::nullopt;
  }

  std::optional<Match> match_rule(const Rule& rule, size_t first) const {
    const std::vector<Instr>& instrs = program_.instrs;
    Match match{{}, {}, first};
    std::vector<const Instr*> window;
    for (; window.size() < rule.kinds.size(); ++match.end) {
      if (match.end == instrs.size()) return std::nullopt;
      const Instr& instr = instrs[match.end];
      if (instr.kind == rule.kinds[window.size()] && instr.microbatch == instrs[first].microbatch) {
        const bool apart = std::ranges::none_of(
            match.between, [&](size_t between) { return share_memory(instrs[between], instr); });
        if (!apart) return std::nullopt;
        window.push_back(&instr);
      } else if (can_wait(instr)) {
        match.between.push_back(match.end);
      } else {
        return std::nullopt;
      }
    }
    std::optional<Instr> fused = rule.merge(window);
    if (!fused || !hides_only_own(window, *fused)) return std::nullopt;
    fused->flops = 0;
    for (const Instr* instr : window) fused->flops += instr->flops;
    if (!has_kernel_(*fused)) return std::nullopt;
    match.fused = std::move(*fused);
    return match;
  }

  // Nobody else sees the memory that the fused instruction no longer writes.
  bool hides_only_own(Window window, const Instr& fused) const {
    const auto uses_in_window = [&](BufferId buffer) {
      int uses = 0;
      for (const Instr* instr : window)
        each_operand(*instr, [&](const Operand& operand) { uses += operand.buffer == buffer ? 1 : 0; });
      return uses;
    };
    return std::ranges::all_of(window, [&](const Instr* instr) {
      return std::ranges::all_of(instr->out, [&](const Operand& out) {
        return mentions(fused, out.buffer) || uses_in_window(out.buffer) == uses_[out.buffer];
      });
    });
  }

  Program& program_;
  const HasKernel& has_kernel_;
  std::vector<int> uses_;  // per buffer: operands in it
};

}  // namespace

void fuse(Program& program, const HasKernel& has_kernel) { Fuser(program, has_kernel).run(); }

}  // namespace tenon
