// Runs graphs op by op with a kernel plugin: on one rank, or a placed graph on all ranks of a virtual mesh
// with simulated collectives. No planner, no executor: the judge of both.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/ops.h"
#include "plugin_host.hpp"
#include "shards.hpp"
#include "tenon/kernels.h"

namespace tenon::test {

// A kernel plugin with an open device. Prepared kernels are kept. Failures are std::runtime_error.
class Kernels {
 public:
  explicit Kernels(const std::string& file)
      : plugin_(file, host_),
        table_(plugin_.table<tenon_kernels>(TENON_KERNELS)),
        options_(plugin_.plugin()) {
    tenon_error error = empty_error();
    check(table_.open(&config_, &device_, &error), error);
  }
  ~Kernels() {
    for (auto& [key, kernel] : prepared_) table_.release(kernel.kernel);
    table_.close(device_);
  }
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // Runs one op into `out`, whose tensors have the right types already; with `accumulate` it adds to them.
  void run(const std::string& kind, const Attrs& attrs, const std::vector<const Tensor*>& in,
           const std::vector<Tensor*>& out, bool accumulate = false) {
    Prepared& kernel = prepare(kind, attrs, in, out, accumulate);
    std::vector<void*> pointers;
    for (const Tensor* tensor : in) pointers.push_back(const_cast<void*>(tensor->data()));
    for (Tensor* tensor : out) pointers.push_back(tensor->data());
    pointers.push_back(kernel.workspace.empty() ? nullptr : kernel.workspace.data());
    const tenon_stream stream{{kDLCPU, 0}, nullptr};
    tenon_error error = empty_error();
    check(table_.enqueue(kernel.kernel, &stream, pointers.data(), &error), error);
  }

 private:
  struct Prepared {
    tenon_kernel* kernel = nullptr;
    std::vector<double> workspace;
  };

  static void check(tenon_code code, const tenon_error& error) {
    if (code != TENON_OK) throw std::runtime_error(error.message);
  }

  static void append(std::string& key, const Tensor& tensor) {
    key += name_of(tensor.dtype());
    for (int64_t n : tensor.dims()) key += " " + std::to_string(n);
    key += ";";
  }

  static tenon_shape shape_of(const Tensor& tensor) {
    return {static_cast<uint32_t>(tensor.dtype()), static_cast<uint32_t>(tensor.dims().size()),
            tensor.dims().data()};
  }

  Prepared& prepare(const std::string& kind, const Attrs& attrs, const std::vector<const Tensor*>& in,
                    const std::vector<Tensor*>& out, bool accumulate) {
    std::string key = kind + (accumulate ? "+" : "");
    std::vector<tenon_option> options;
    for (const auto& [name, value] : attrs) {
      const auto* integer = std::get_if<int64_t>(&value);
      const double number = integer ? static_cast<double>(*integer) : std::get<double>(value);
      options.push_back({name.c_str(), integer ? uint32_t{TENON_INT} : uint32_t{TENON_FLOAT}, 0,
                         integer ? *integer : 0, number, nullptr, nullptr});
      char digits[40];
      std::snprintf(digits, sizeof digits, "%a", number);
      key += "," + name + "=" + (integer ? std::to_string(*integer) : digits);
    }
    std::vector<tenon_shape> inputs, outputs;
    for (const Tensor* tensor : in) append(key, *tensor), inputs.push_back(shape_of(*tensor));
    for (const Tensor* tensor : out) append(key, *tensor), outputs.push_back(shape_of(*tensor));
    const auto [it, fresh] = prepared_.try_emplace(key);
    if (!fresh) return it->second;
    tenon_kernel_desc desc{sizeof(tenon_kernel_desc),
                           accumulate ? uint32_t{TENON_KERNEL_ACCUMULATE} : 0u,
                           kind.c_str(),
                           inputs.data(),
                           outputs.data(),
                           options.data(),
                           static_cast<uint32_t>(inputs.size()),
                           static_cast<uint32_t>(outputs.size()),
                           static_cast<uint32_t>(options.size()),
                           -1};
    try {
      tenon_error error = empty_error();
      tenon_kernel_info info{};
      info.struct_size = sizeof info;
      check(table_.describe(&config_, &desc, &info, &error), error);
      check(table_.prepare(device_, &desc, &it->second.kernel, &error), error);
      it->second.workspace.resize((info.workspace_bytes + 7) / 8);
    } catch (...) {
      prepared_.erase(it);
      throw;
    }
    return it->second;
  }

  MockHost host_;
  LoadedPlugin plugin_;
  const tenon_kernels& table_;
  OptionValues options_;
  const tenon_kernels_config config_{.struct_size = sizeof(tenon_kernels_config),
                                     .num_options = options_.size(),
                                     .host = plugin_.host(),
                                     .options = options_.data(),
                                     .profile = nullptr,
                                     .device_id = 0,
                                     .reserved = 0};
  tenon_device* device_ = nullptr;
  std::map<std::string, Prepared> prepared_;
};

using Leaves = std::map<ValueId, Tensor>;  // tensors of the values that no op makes

struct KernelCall {
  std::string kind;
  Attrs attrs;
};

// Runs one kernel on the tensors of an op's values; an op that accumulates continues `acc`.
inline void run_op(Kernels& kernels, const KernelCall& call, const std::vector<const Tensor*>& in,
                   const std::vector<const Tensor*>& acc, const std::vector<Tensor*>& out) {
  for (size_t k = 0; k < acc.size(); ++k) *out[k] = *acc[k];
  kernels.run(call.kind, call.attrs, in, out, !acc.empty());
}

// One rank, all values, of a graph without collectives.
class GraphInterpreter {
 public:
  GraphInterpreter(Kernels& kernels, const Graph& graph) : kernels_(kernels), graph_(graph) {
    for (const Value& value : graph.values()) values_.emplace_back(value.dtype, sizes(value.dims));
  }
  // Sets a value that no op makes.
  void set(ValueId id, const Tensor& tensor) {
    if (tensor.dims() != values_[id].dims() || tensor.dtype() != values_[id].dtype()) {
      throw std::runtime_error("wrong tensor for " + text(graph_, id));
    }
    values_[id] = tensor;
  }
  void set(const Leaves& leaves) {
    for (const auto& [id, tensor] : leaves) set(id, tensor);
  }
  Tensor& value(ValueId id) { return values_[id]; }
  void run() { run(0, static_cast<OpId>(graph_.ops().size())); }
  void run(OpId first, OpId end) {
    for (OpId id = first; id < end; ++id) {
      const Op& op = graph_.op(id);
      run_op(kernels_, {op.def->kind, op.attrs}, constant(op.in), constant(op.acc), mutable_(op.out));
    }
  }

 private:
  std::vector<const Tensor*> constant(const std::vector<ValueId>& ids) const {
    std::vector<const Tensor*> out;
    for (ValueId id : ids) out.push_back(&values_[id]);
    return out;
  }
  std::vector<Tensor*> mutable_(const std::vector<ValueId>& ids) {
    std::vector<Tensor*> out;
    for (ValueId id : ids) out.push_back(&values_[id]);
    return out;
  }

  Kernels& kernels_;
  const Graph& graph_;
  std::vector<Tensor> values_;
};

// An operand of an op on one rank: how its value is placed, and the sizes of the rank's tensor.
struct LocalOperand {
  const Placement* placement;
  const std::vector<int64_t>* dims;
};

// What a rank runs for an op. Where the op's offset factor is cut it is the shard kind, told which index its
// shard starts with.
inline KernelCall kernel_call(const OpDef& def, const Rule& rule, const Attrs& attrs,
                              const std::vector<LocalOperand>& in, const std::vector<LocalOperand>& out,
                              const Mesh& mesh, int64_t rank) {
  const std::vector<int64_t> coordinate = mesh.coordinate(rank);
  for (const auto& [factors, operands] : {std::pair(&rule.inputs, &in), std::pair(&rule.outputs, &out)}) {
    for (size_t i = 0; i < factors->size(); ++i) {
      for (size_t d = 0; d < (*factors)[i].size(); ++d) {
        const std::vector<AxisId>& axes = (*operands)[i].placement->dims[d];
        const int factor = (*factors)[i][d];
        if (axes.empty() || rule.factors[static_cast<size_t>(factor)].name != def.offset) continue;
        return {def.shard_kind, {{"start", index_on(mesh, coordinate, axes) * (*operands)[i].dims->at(d)}}};
      }
    }
  }
  return {def.kind, attrs};
}

// All ranks of a mesh, all values, of a placed graph. An op that exchanges along a factor itself is given its
// operands whole in that factor.
class MeshInterpreter {
 public:
  MeshInterpreter(Kernels& kernels, const Graph& placed, const Mesh& mesh, uint64_t seed)
      : kernels_(kernels), graph_(placed), mesh_(mesh), random_(seed), values_(placed.values().size()) {}

  // Cuts a global tensor by the value's placement.
  void set(ValueId id, const Tensor& global) {
    values_[id] = split(global, graph_.value(id).placement, mesh_, random_);
  }
  void run() {
    for (const Op& op : graph_.ops()) run(op);
  }
  // What the ranks' tensors of a value stand for; throws where copies differ.
  Tensor global(ValueId id, double tolerance = 1e-12) const {
    const Value& value = graph_.value(id);
    return assemble(values_[id], value.placement, mesh_, sizes(value.dims), tolerance);
  }
  const std::vector<Tensor>& locals(ValueId id) const { return values_[id]; }

 private:
  void run(const Op& op) {
    if (reshard_of(*op.def) != TransferKind::none) {
      const Placement& from = graph_.value(op.in[0]).placement;
      const Placement& to = graph_.value(op.out[0]).placement;
      values_[op.out[0]] = simulate(op.def->kind, op.axes.at(0), from, to, mesh_, values_[op.in[0]]);
      return;
    }
    for (ValueId id : op.out) {
      const Value& value = graph_.value(id);
      values_[id].assign(static_cast<size_t>(mesh_.world()),
                         Tensor(value.dtype, box_of(value.placement, mesh_, sizes(value.dims))));
    }
    std::vector<size_t> ranks;
    for (ValueId id : op.in) ranks.push_back(graph_.value(id).dims.size());
    const Rule rule = rule_of(*op.def, ranks).value();
    const std::vector<OnRanks> in = operands(op, rule);
    for (size_t rank = 0; rank < static_cast<size_t>(mesh_.world()); ++rank) run(op, rule, in, rank);
  }
  // Tensors of all ranks, and their placement.
  struct OnRanks {
    Placement placement;
    std::vector<Tensor> locals;
  };
  std::vector<OnRanks> operands(const Op& op, const Rule& rule) const {
    std::vector<OnRanks> out;
    for (size_t i = 0; i < op.in.size(); ++i) {
      OnRanks& one = out.emplace_back(OnRanks{graph_.value(op.in[i]).placement, values_[op.in[i]]});
      for (size_t d = 0; d < rule.inputs[i].size(); ++d) {
        if (rule.factors[static_cast<size_t>(rule.inputs[i][d])].kind != Rule::Kind::exchange) continue;
        while (!one.placement.dims[d].empty()) {
          Placement gathered = one.placement;
          gathered.dims[d].pop_back();
          const AxisId axis = one.placement.dims[d].back();
          one.locals = simulate("all_gather", axis, one.placement, gathered, mesh_, one.locals);
          one.placement = gathered;
        }
      }
    }
    return out;
  }
  void run(const Op& op, const Rule& rule, const std::vector<OnRanks>& in, size_t rank) {
    std::vector<const Tensor*> inputs;
    std::vector<Tensor*> outputs;
    std::vector<LocalOperand> local_in, local_out;
    for (const OnRanks& one : in) {
      inputs.push_back(&one.locals[rank]);
      local_in.push_back({&one.placement, &one.locals[rank].dims()});
    }
    for (ValueId id : op.out) {
      outputs.push_back(&values_[id][rank]);
      local_out.push_back({&graph_.value(id).placement, &values_[id][rank].dims()});
    }
    const KernelCall call =
        kernel_call(*op.def, rule, op.attrs, local_in, local_out, mesh_, static_cast<int64_t>(rank));
    run_op(kernels_, call, inputs, on_rank(op.acc, rank), outputs);
  }
  std::vector<const Tensor*> on_rank(const std::vector<ValueId>& ids, size_t rank) const {
    std::vector<const Tensor*> out;
    for (ValueId id : ids) out.push_back(&values_[id].at(rank));
    return out;
  }

  Kernels& kernels_;
  const Graph& graph_;
  const Mesh& mesh_;
  Random random_;
  std::vector<std::vector<Tensor>> values_;  // per value, per rank
};

}  // namespace tenon::test
