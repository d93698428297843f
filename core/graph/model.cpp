#include "graph/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/hash.h"
#include "graph/ops.h"

namespace tenon {
namespace {

using Scope = std::map<std::string, ValueId>;

std::string numbered(std::string name, int round) {
  if (round < 0) return name;
  const size_t at = name.find("{i}");
  if (at != std::string::npos) name.replace(at, 3, std::to_string(round));
  return name;
}

// Each op of each round draws numbers of its own. "dropout/" for every kind, or old runs would draw others.
int64_t random_key(uint64_t seed, int64_t base, int round) {
  return static_cast<int64_t>(
      key_from(seed, "dropout/" + std::to_string(base) + "/" + std::to_string(round)));
}

class ModelBuilder {
 public:
  ModelBuilder(const Recipe& recipe, ForwardGraph& out) : recipe_(recipe), out_(out) {}

  // Parameters of a round belong to the layer whose op reads them first.
  Status add_params(const std::vector<ParamSpec>& params, int round, const std::string& pointer) {
    for (size_t i = 0; i < params.size(); ++i) {
      const ParamSpec& spec = params[i];
      Value value;
      value.name = numbered(spec.name, round);
      value.pointer = pointer + "/" + std::to_string(i);
      value.dtype = out_.graph.real;
      value.dims = spec.dims;
      value.role = Role::param;
      value.init = spec.init;
      const ValueId id = out_.graph.add_value(value);
      if (round >= 0) unread_.insert(id);
      if (!define(outer_, value.name, id)) {
        return Error{"R006", "parameter '" + value.name + "' is defined twice", pointer,
                     "use {i} in the names of repeated parameters", TENON_E_RECIPE};
      }
    }
    return {};
  }

  Status add_ops(const std::vector<OpSpec>& ops, Scope& scope) {
    for (const OpSpec& spec : ops) TENON_CHECK(add(spec, scope, {}));
    return {};
  }

  Scope& outer() { return outer_; }
  static bool define(Scope& scope, const std::string& name, ValueId id) {
    return scope.emplace(name, id).second;
  }

 private:
  struct Place {
    int round = -1, layer = -1;  // -1: outside of repeats
  };

  Status add(const OpSpec& spec, Scope& scope, const Place& place) {
    auto status = spec.repeat ? add_repeat(spec, scope) : add_op(spec, scope, place);
    if (status.ok()) return {};
    Error error = std::move(status).error();
    if (error.place.empty()) error.place = spec.pointer;
    return error;
  }

  Status add_op(const OpSpec& spec, Scope& scope, const Place& place) {
    const int round = place.round;
    if (spec.out.empty()) {
      return Error{"R006", spec.kind + " names no output", spec.pointer, "", TENON_E_RECIPE};
    }
    std::vector<ValueId> in;
    for (const std::string& written : spec.in) {
      const std::string name = numbered(written, round);
      const auto local = scope.find(name);
      const auto it = local != scope.end() ? local : outer_.find(name);
      if (it == (local != scope.end() ? scope.end() : outer_.end())) {
        return Error{"R007", spec.kind + ": '" + name + "' is not defined here", spec.pointer, "",
                     TENON_E_RECIPE};
      }
      in.push_back(it->second);
      if (unread_.erase(in.back()) > 0) out_.graph.value(in.back()).layer = place.layer;
    }
    std::vector<std::string> names;
    for (const std::string& name : spec.out) {
      names.push_back(round < 0 ? name : std::to_string(round) + "/" + name);
    }
    TENON_TRY(const auto values,
              out_.graph.add_op(spec.kind, in, spec.attrs, Phase::forward, place.layer, names));
    Op& op = out_.graph.op(out_.graph.value(values[0]).producer);
    op.pointer = spec.pointer;
    if (const char* key = op.def->random_key; *key != '\0')
      op.attrs = op.attrs.with(key, random_key(recipe_.seed, attr_int(op.attrs, key), round));
    for (size_t i = 0; i < spec.out.size(); ++i) {
      if (i >= values.size()) {
        return Error{"R006", spec.kind + " has " + std::to_string(values.size()) + " outputs", spec.pointer,
                     "", TENON_E_RECIPE};
      }
      if (!define(scope, spec.out[i], values[i])) {
        return Error{"R006", "value '" + spec.out[i] + "' is defined twice", spec.pointer, "",
                     TENON_E_RECIPE};
      }
    }
    return {};
  }

  Status add_repeat(const OpSpec& spec, Scope& scope) {
    const RepeatSpec& repeat = *spec.repeat;
    const auto round_size =
        static_cast<int64_t>(std::max<size_t>(1, repeat.params.size() + repeat.ops.size()));
    if (repeat.count > (kMaxOps - size_) / round_size) {
      return Error{"R014",
                   fmt::format("{} repeats of {} ops and parameters: a model has at most {}", repeat.count,
                               round_size, kMaxOps),
                   spec.pointer + "/repeat", "repeat fewer times", TENON_E_RECIPE};
    }
    size_ += repeat.count * round_size;
    for (int round = 0; round < repeat.count; ++round) {
      TENON_CHECK(add_params(repeat.params, round, spec.pointer + "/params"));
      Scope local;
      TENON_CHECK(add_round(repeat, local, round));
      for (const auto& [entry, exit] : repeat.carry) {
        const auto it = local.find(exit);
        if (it == local.end() || !scope.contains(entry)) {
          return Error{"R007",
                       "carry [" + entry + ", " + exit + "]: the one must exist outside, the other inside",
                       spec.pointer, "", TENON_E_RECIPE};
        }
        carried_[entry] = it->second;
      }
      for (const auto& [name, id] : carried_) scope[name] = id;
      carried_.clear();
    }
    return {};
  }

  // Layers are counted through, over all repeats.
  Status add_round(const RepeatSpec& repeat, Scope& scope, int round) {
    const std::vector<int64_t> whole{static_cast<int64_t>(repeat.ops.size())};
    const std::vector<int64_t>& layers = repeat.layers.empty() ? whole : repeat.layers;
    auto spec = repeat.ops.begin();
    for (const int64_t ops : layers) {
      const Place place{round, layers_++};
      for (const auto end = spec + ops; spec != end; ++spec) TENON_CHECK(add(*spec, scope, place));
    }
    return {};
  }

  const Recipe& recipe_;
  ForwardGraph& out_;
  std::set<ValueId> unread_;  // parameters of rounds
  Scope outer_;
  Scope carried_;
  int64_t size_ = 0;  // of the repeats so far
  int layers_ = 0;    // of the repeats so far
};

ValueId add_input(Graph& graph, const char* name, Dtype dtype, Dims dims) {
  Value value;
  value.name = name;
  value.dtype = dtype;
  value.dims = std::move(dims);
  value.role = Role::input;
  return graph.add_value(std::move(value));
}

// The losses of ops in front of the loss itself: routers'. Their gradients are the ops' own matter, so this
// is behind loss_op.
Status add_auxiliary_losses(ForwardGraph& out) {
  for (OpId id = 0; id < out.loss_op; ++id) {
    const OpDef& def = *out.graph.op(id).def;
    if (*def.loss == '\0') continue;
    const ValueId auxiliary = out.graph.op(id).out[def.output(def.loss)];
    const std::string pointer = out.graph.op(id).pointer;
    TENON_TRY(const auto sum,
              out.graph.add_op("add", {out.loss, auxiliary}, {}, Phase::forward, -1, {"loss+aux"}));
    out.graph.op(out.graph.value(sum[0]).producer).pointer = pointer;
    out.loss = sum[0];
  }
  return {};
}

}  // namespace

Result<ForwardGraph> build_forward(const Recipe& recipe, int64_t batch, int64_t seq, bool with_loss) {
  ForwardGraph out;
  Graph& graph = out.graph;
  graph.real = recipe.precision;
  const Dims token_dims{{"batch", batch}, {"seq", seq}};
  if (!fits(token_dims)) {
    return Error{
        "R005",
        fmt::format("a batch of {} samples of {} tokens: at most {} tokens", batch, seq, kMaxElements),
        "/batch", "a smaller batch or context", TENON_E_RECIPE};
  }
  out.tokens = add_input(graph, "tokens", Dtype::i32, token_dims);
  out.targets = add_input(graph, "targets", Dtype::i32, token_dims);
  out.positions = add_input(graph, "positions", Dtype::i32, token_dims);
  out.samples = add_input(graph, "samples", Dtype::i64, {{"batch", batch}});
  out.step = add_input(graph, "step", Dtype::i64, {});
  ModelBuilder builder(recipe, out);
  for (ValueId id : graph.with_role(Role::input))
    ModelBuilder::define(builder.outer(), graph.value(id).name, id);
  TENON_CHECK(builder.add_params(recipe.model.params, -1, "/model/params"));
  TENON_CHECK(builder.add_ops(recipe.model.ops, builder.outer()));
  const auto logits = builder.outer().find(recipe.model.logits);
  if (logits == builder.outer().end()) {
    return Error{"R007", "model.logits names '" + recipe.model.logits + "', which no op defines",
                 "/model/logits", "", TENON_E_RECIPE};
  }
  out.logits = logits->second;
  if (with_loss) {
    auto loss = graph.add_op("cross_entropy", {out.logits, out.targets}, {}, Phase::forward, -1,
                             {"loss", "count", "lse"});
    if (!loss.ok()) {
      Error error = std::move(loss).error();
      error.place = "/model/logits";
      return error;
    }
    out.loss_op = graph.value(loss.value()[0]).producer;
    graph.op(out.loss_op).pointer = "/model/logits";
    out.loss = loss.value()[0];
    out.count = loss.value()[1];
    TENON_CHECK(add_auxiliary_losses(out));
  }
  return out;
}

Status check_total_size(const Graph& graph) {
  int64_t total = 0;
  for (const Value& value : graph.values()) {
    total += elements(value.dims);
    if (total <= kMaxTotalElements) continue;
    return Error{"R014", fmt::format("the model's values have more than {} elements", kMaxTotalElements),
                 "/model", "a smaller model, batch or context", TENON_E_RECIPE};
  }
  return {};
}

}  // namespace tenon
