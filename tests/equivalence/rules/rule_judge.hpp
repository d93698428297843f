// Judges a typing of an op by numbers: the op on the shards of four virtual ranks against the op on whole
// tensors. The rule is an argument, so that wrong rules can be judged too.
#pragma once

#include <functional>
#include <set>

#include "graph_interpreter.hpp"
#include "op_cases.hpp"

namespace tenon::test {

inline Mesh mesh_2x2() { return Mesh{{{"x", 2}, {"y", 2}}}; }

class RuleJudge {
 public:
  RuleJudge(Kernels& kernels, OpCase op_case)
      : kernels_(kernels), case_(std::move(op_case)), def_(*find_op(case_.kind)), random_(1234) {
    rule_ = with_text(def_.rule, def_.whole, def_.linear_inputs);
    Graph graph;
    graph.real = Dtype::f64;
    std::vector<ValueId> ids;
    for (size_t i = 0; i < case_.ranks.size(); ++i) {
      inputs_.push_back(random_input(def_, case_, rule_, i, random_));
      Value value;
      value.dtype = inputs_[i].dtype();
      for (int64_t size : inputs_[i].dims()) value.dims.push_back({"", size});
      ids.push_back(graph.add_value(value));
    }
    const std::vector<TensorType> types = infer_outputs(def_, graph, ids, case_.attrs).value();
    for (const TensorType& type : types) whole_.emplace_back(type.dtype, sizes(type.dims));
    run({case_.kind, case_.attrs}, inputs_, whole_);
  }

  const OpDef& def() const { return def_; }
  const Rule& rule() const { return rule_; }
  bool is_real(size_t input) const { return inputs_[input].is_real(); }
  size_t numeric_runs() const { return numeric_runs_; }
  // A planted fault: every shard is taken for the first.
  void forget_starts() {
    starts_ = false;
    verdicts_.clear();
  }

  // The op's rule with other texts.
  Rule with_text(const std::string& text, const std::string& whole, const std::string& linear) const {
    OpDef def = def_;
    def.rule = text;
    def.whole = whole.c_str();
    def.linear_inputs = linear;
    return rule_of(def, case_.ranks).value();
  }

  // Types the op by `rule` and checks the typing; what is wrong with it, or "".
  std::string judge(const Rule& rule, const std::vector<Placement>& given,
                    const std::vector<std::optional<Placement>>& wanted = {}) {
    const Typing typing = type_op(rule, given, wanted);
    for (size_t i = 0; i < given.size(); ++i) {
      if (!well_formed(typing.inputs[i], rule.inputs[i].size())) return "input " + name(i) + " is malformed";
      for (const Partial& partial : typing.inputs[i].partials) {
        if (!given[i].is_partial(partial.axis)) return "input " + name(i) + " would have to become partial";
      }
    }
    for (size_t k = 0; k < typing.outputs.size(); ++k) {
      if (!well_formed(typing.outputs[k], rule.outputs[k].size())) return "an output is malformed";
    }
    const std::vector<std::optional<Placement>> found(typing.outputs.begin(), typing.outputs.end());
    const Typing again = type_op(rule, typing.inputs, found);
    if (again.inputs != typing.inputs || again.outputs != typing.outputs)
      return "the typing is not its own typing";
    return judge_numbers(typing);
  }

  // Placements that were judged before are not run again.
  std::string judge_numbers(const Typing& typing) {
    std::string key;
    for (const Placement& placement : typing.inputs) key += text(placement, {}, mesh_) + "|";
    for (const Placement& placement : typing.outputs) key += text(placement, {}, mesh_) + "|";
    const auto [it, fresh] = verdicts_.try_emplace(key);
    if (fresh) it->second = compare(typing);
    return it->second;
  }

 private:
  std::string name(size_t i) const { return def_.in[declared_input(def_, i, case_.ranks.size())].name; }

  static bool well_formed(const Placement& placement, size_t rank) {
    std::vector<AxisId> axes;
    for (const auto& dim : placement.dims) axes.insert(axes.end(), dim.begin(), dim.end());
    for (const Partial& partial : placement.partials) axes.push_back(partial.axis);
    return placement.dims.size() == rank && std::set<AxisId>(axes.begin(), axes.end()).size() == axes.size();
  }

  void run(const KernelCall& call, const std::vector<Tensor>& in, std::vector<Tensor>& out) {
    std::vector<const Tensor*> inputs;
    std::vector<Tensor*> outputs;
    for (const Tensor& tensor : in) inputs.push_back(&tensor);
    for (Tensor& tensor : out) outputs.push_back(&tensor);
    kernels_.run(call.kind, call.attrs, inputs, outputs);
  }

  KernelCall call_on(size_t rank, const Typing& typing, const std::vector<Tensor>& in,
                     const std::vector<Tensor>& out) const {
    std::vector<LocalOperand> local_in, local_out;
    for (size_t i = 0; i < in.size(); ++i) local_in.push_back({&typing.inputs[i], &in[i].dims()});
    for (size_t k = 0; k < out.size(); ++k) local_out.push_back({&typing.outputs[k], &out[k].dims()});
    KernelCall call =
        kernel_call(def_, rule_, case_.attrs, local_in, local_out, mesh_, static_cast<int64_t>(rank));
    if (!starts_ && call.attrs.contains("start")) call.attrs["start"] = int64_t{0};
    return call;
  }

  std::string compare(const Typing& typing) {
    ++numeric_runs_;
    const size_t world = static_cast<size_t>(mesh_.world());
    std::vector<std::vector<Tensor>> in(world), out(world);
    try {
      for (size_t i = 0; i < inputs_.size(); ++i) {
        const auto locals = split(inputs_[i], typing.inputs[i], mesh_, random_);
        for (size_t rank = 0; rank < world; ++rank) in[rank].push_back(locals[rank]);
      }
      for (size_t rank = 0; rank < world; ++rank) {
        for (size_t k = 0; k < whole_.size(); ++k) {
          out[rank].emplace_back(whole_[k].dtype(), box_of(typing.outputs[k], mesh_, whole_[k].dims()));
        }
        run(call_on(rank, typing, in[rank], out[rank]), in[rank], out[rank]);
      }
      for (size_t k = 0; k < whole_.size(); ++k) {
        std::vector<Tensor> locals;
        for (size_t rank = 0; rank < world; ++rank) locals.push_back(out[rank][k]);
        const Tensor got = assemble(locals, typing.outputs[k], mesh_, whole_[k].dims(), kTolerance);
        const double error = relative_error(got, whole_[k]);
        if (!(error <= kTolerance)) return def_.out[k].name + " is wrong by " + std::to_string(error);
      }
    } catch (const std::exception& e) {  // shapes that the kernel refuses, copies that differ
      return e.what();
    }
    return "";
  }

  static constexpr double kTolerance = 1e-12;  // f64 sums in another order

  Kernels& kernels_;
  OpCase case_;
  const OpDef& def_;
  Random random_;
  Mesh mesh_ = mesh_2x2();
  Rule rule_;
  std::vector<Tensor> inputs_, whole_;
  std::map<std::string, std::string> verdicts_;
  size_t numeric_runs_ = 0;
  bool starts_ = true;
};

// All placements of one operand over the axes [first, first + count) of a 2x2 mesh: each axis absent,
// sharding a dim that `allowed` names, or (where `partial`) summed; both orders where two share a dim.
inline std::vector<Placement> placements_of(size_t rank, const std::vector<bool>& allowed, bool partial,
                                            const std::vector<AxisId>& axes) {
  std::vector<Placement> out{Placement::replicated(rank)};
  for (AxisId axis : axes) {
    std::vector<Placement> grown = out;
    for (const Placement& before : out) {
      if (partial) {
        grown.push_back(before);
        grown.back().add_partial(axis, Reduction::sum);
      }
      for (size_t d = 0; d < rank; ++d) {
        if (!allowed[d]) continue;
        grown.push_back(before);
        grown.back().dims[d].push_back(axis);
        if (before.dims[d].empty()) continue;
        grown.push_back(before);
        grown.back().dims[d].insert(grown.back().dims[d].begin(), axis);
      }
    }
    out = std::move(grown);
  }
  return out;
}

// Calls visit() with every combination of one placement per operand.
inline size_t for_each_combination(const std::vector<std::vector<Placement>>& options,
                                   const std::function<void(const std::vector<Placement>&)>& visit) {
  std::vector<size_t> at(options.size(), 0);
  std::vector<Placement> given;
  for (const auto& option : options) given.push_back(option[0]);
  size_t count = 0;
  while (true) {
    visit(given);
    ++count;
    size_t i = 0;
    while (i < at.size() && ++at[i] == options[i].size()) {
      at[i] = 0;
      given[i] = options[i][0];
      ++i;
    }
    if (i == at.size()) return count;
    given[i] = options[i][at[i]];
  }
}

inline std::vector<Placement> random_combination(const std::vector<std::vector<Placement>>& options,
                                                 Random& random) {
  std::vector<Placement> given;
  for (const auto& option : options) {
    given.push_back(option[static_cast<size_t>(below(random, static_cast<int64_t>(option.size())))]);
  }
  return given;
}

}  // namespace tenon::test
