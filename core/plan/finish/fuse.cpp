#include "plan/finish/fuse.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "graph/ops.h"

namespace tenon {
namespace {

using Neighbours = std::span<const Instr* const>;  // neighbours on the compute lane

// The one instruction of a kind that does what its neighbours do; none where the operands are not connected
// as it needs.
using Merge = std::optional<Instr> (*)(const OpDef& kind, Neighbours);

struct Rule {
  std::vector<std::string> parts;
  const OpDef* kind;
  Merge merge;
};

// An instruction of a fused kind whose operands are all unset, in place of one of its parts.
Instr begin(const OpDef& kind, const Instr& like) {
  Instr out = like;
  out.kind = kind.kind;
  out.in.assign(kind.in.size(), {});
  out.out.assign(kind.out.size(), {});
  return out;
}

bool same(const Operand& a, const Operand& b) { return a.buffer == b.buffer && a.offset == b.offset; }

// z = x + y and the norm of z. Both are results: the residual stream goes on with z.
std::optional<Instr> add_norm(const OpDef& kind, Neighbours these) {
  const Instr &add = *these[0], &norm = *these[1];
  if (!same(output(add, "z"), input(norm, "x"))) return std::nullopt;
  Instr out = norm;
  out.kind = kind.kind;
  out.in = add.in;  // x and y stand for the norm's x
  out.in.insert(out.in.end(), norm.in.begin() + 1, norm.in.end());
  out.out = add.out;  // z, then all of the norm's
  out.out.insert(out.out.end(), norm.out.begin(), norm.out.end());
  out.inplace = add.inplace;
  return out;
}

// z = x + bias and its activation. Both are results: the gradient starts from z.
std::optional<Instr> bias_gelu(const OpDef& kind, Neighbours these) {
  const Instr &bias = *these[0], &gelu = *these[1];
  if (!same(output(bias, "y"), input(gelu, "x"))) return std::nullopt;
  Instr out = begin(kind, bias);
  out.in = bias.in;
  output(out, "z") = output(bias, "y");
  output(out, "y") = output(gelu, "y");
  return out;
}

// A gradient that is added to one that is there: the kernel adds it itself.
std::optional<Instr> accumulate(const OpDef&, Neighbours these) {
  const Instr &kernel = *these[0], &add = *these[1];
  const Operand& sum = input(add, "x");
  if (add.inplace != 0 || kernel.accumulate || !same(kernel.out[0], input(add, "y"))) return std::nullopt;
  const bool reads_sum = std::ranges::count(kernel.in, sum.buffer, &Operand::buffer) > 0;
  if (reads_sum || same(kernel.out[0], sum)) return std::nullopt;
  Instr out = kernel;
  out.out = add.out;
  out.accumulate = true;
  return out;
}

// The vocabulary's logits and their loss.
std::optional<Instr> head_loss(const OpDef& kind, Neighbours these) {
  const Instr &linear = *these[0], &loss = *these[1];
  const size_t dims = input(linear, "w").dims.size() + 2 - input(linear, "x").dims.size();
  if (!same(output(linear, "y"), input(loss, "logits")) || dims != 1) return std::nullopt;
  Instr out = begin(kind, loss);
  input(out, "x") = input(linear, "x");
  input(out, "w") = input(linear, "w");
  input(out, "targets") = input(loss, "targets");
  output(out, "loss") = output(loss, "loss");
  output(out, "count") = output(loss, "count");
  return out;
}

// That and the gradients: as the loss is what they start from, nothing has to be kept for them.
std::optional<Instr> head_gradients(const OpDef& kind, Neighbours these) {
  const Instr &linear = *these[0], &logits = *these[2], &weight = *these[3], &back = *these[4];
  const Operand& dlogits = output(logits, "dlogits");
  std::optional<Instr> out = head_loss(kind, these.first(2));
  const bool joined = same(input(logits, "logits"), output(linear, "y")) &&
                      same(input(weight, "dy"), dlogits) && same(input(back, "dy"), dlogits) &&
                      same(input(weight, "x"), input(linear, "x")) &&
                      same(input(back, "w"), input(linear, "w")) && !back.accumulate;
  if (!out || !joined) return std::nullopt;
  out->phase = Phase::weight_grad;
  output(*out, "dw") = output(weight, "dw");
  output(*out, "dx") = output(back, "dx");
  out->accumulate = weight.accumulate;
  return out;
}

constexpr std::array<std::pair<const char*, Merge>, 5> kMerges{{
    {"linear_cross_entropy_grad", head_gradients},
    {"linear_cross_entropy", head_loss},
    {"add_layernorm", add_norm},
    {"add_rmsnorm", add_norm},
    {"bias_gelu", bias_gelu},
}};

std::vector<std::string> kinds_of(const OpDef& fused) {
  std::vector<std::string> out;
  for (const PartDef& part : fused.made_of) out.push_back(part.kind);
  return out;
}

// The fused kinds of the op table, those that replace most first; then sums into gradients, which every
// kernel of an input's gradient makes itself that may add into its output.
std::vector<Rule> make_rules() {
  std::vector<Rule> out;
  for (const auto& [kind, merge] : kMerges)
    out.push_back({kinds_of(*find_kind(kind)), find_kind(kind), merge});
  for (const OpDef& def : op_table()) {
    const OpDef* back = find_kind(def.input_grad);
    if (back != nullptr && back->out[0].accumulates) out.push_back({{back->kind, "add"}, back, accumulate});
  }
  return out;
}

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = make_rules();
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
  Fuser(Program& program, const FuseLimits& limits, const HasKernel& has_kernel)
      : program_(program), has_kernel_(has_kernel), uses_(program.buffers.size()) {
    std::ranges::copy_if(rules(), std::back_inserter(rules_),
                         [&](const Rule& rule) { return allowed(rule, limits); });
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

  static bool allowed(const Rule& rule, const FuseLimits& limits) {
    if (rule.merge == accumulate && limits.sums == Sums::apart) return false;
    const std::string kind = rule.kind->kind;
    return limits.chosen.contains(kind) || std::ranges::none_of(rule.parts, [&](const std::string& part) {
             return limits.chosen.contains(part);
           });
  }

  // Transfers, and sums over microbatches.
  static bool can_wait(const Instr& instr) { return instr.lane != 0 || instr.kind == "add"; }

  std::optional<Match> match_at(size_t first) const {
    for (const Rule& rule : rules_) {
      if (program_.instrs[first].kind != rule.parts[0]) continue;
      if (std::optional<Match> match = match_rule(rule, first)) return match;
    }
    return std::nullopt;
  }

  std::optional<Match> match_rule(const Rule& rule, size_t first) const {
    const std::vector<Instr>& instrs = program_.instrs;
    Match match{{}, {}, first};
    std::vector<const Instr*> these;
    for (; these.size() < rule.parts.size(); ++match.end) {
      if (match.end == instrs.size()) return std::nullopt;
      const Instr& instr = instrs[match.end];
      if (instr.kind == rule.parts[these.size()] && instr.microbatch == instrs[first].microbatch) {
        const bool apart = std::ranges::none_of(
            match.between, [&](size_t between) { return share_memory(instrs[between], instr); });
        if (!apart) return std::nullopt;
        these.push_back(&instr);
      } else if (can_wait(instr)) {
        match.between.push_back(match.end);
      } else {
        return std::nullopt;
      }
    }
    std::optional<Instr> fused = rule.merge(*rule.kind, these);
    if (!fused || !hides_only_own(these, *fused)) return std::nullopt;
    fused->flops = 0;
    for (const Instr* instr : these) {
      fused->flops += instr->flops;
      fused->fused.push_back(instr->why);
    }
    if (!has_kernel_(*fused)) return std::nullopt;
    match.fused = std::move(*fused);
    return match;
  }

  // Nobody else sees the memory that the fused instruction no longer writes.
  bool hides_only_own(Neighbours these, const Instr& fused) const {
    const auto uses_here = [&](BufferId buffer) {
      int uses = 0;
      for (const Instr* instr : these)
        each_operand(*instr, [&](const Operand& operand) { uses += operand.buffer == buffer ? 1 : 0; });
      return uses;
    };
    return std::ranges::all_of(these, [&](const Instr* instr) {
      return std::ranges::all_of(instr->out, [&](const Operand& out) {
        return mentions(fused, out.buffer) || uses_here(out.buffer) == uses_[out.buffer];
      });
    });
  }

  Program& program_;
  const HasKernel& has_kernel_;
  std::vector<Rule> rules_;  // that are allowed
  std::vector<int> uses_;    // per buffer: operands in it
};

}  // namespace

void fuse(Program& program, const FuseLimits& limits, const HasKernel& has_kernel) {
  Fuser(program, limits, has_kernel).run();
}

}  // namespace tenon
