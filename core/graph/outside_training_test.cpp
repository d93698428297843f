#include "graph/outside_training.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/ops.h"

namespace tenon {
namespace {

ValueId add_value(Graph& graph, const std::string& name, Role role, Dtype dtype, const Dims& dims) {
  Value value;
  value.name = name;
  value.role = role;
  value.dtype = dtype;
  value.dims = dims;
  return graph.add_value(value);
}

// logits = gelu(dropout(dropout(gelu(x)))), and its loss.
struct Model {
  Model() {
    Graph& graph = forward.graph;
    const Dims tokens{{"batch", 4}, {"seq", 4}};
    x = add_value(graph, "x", Role::param, Dtype::f32, {{"batch", 4}, {"seq", 4}, {"vocab", 8}});
    forward.targets = add_value(graph, "targets", Role::input, Dtype::i32, tokens);
    forward.positions = add_value(graph, "positions", Role::input, Dtype::i32, tokens);
    forward.samples = add_value(graph, "samples", Role::input, Dtype::i64, {tokens[0]});
    forward.step = add_value(graph, "step", Role::input, Dtype::i64, {});
    forward.tokens = forward.targets;
    made = add("gelu", {x}, {}, "made");
    first = dropout(made, "first");
    second = dropout(first, "second");
    forward.logits = add("gelu", {second}, {}, "logits");
    forward.loss = add("cross_entropy", {forward.logits, forward.targets}, {}, "loss");
    forward.loss_op = graph.value(forward.loss).producer;
    forward.count = graph.op(forward.loss_op).out[1];
  }
  ValueId add(const std::string& kind, const std::vector<ValueId>& in, const Attrs& attrs,
              const std::string& name) {
    std::vector<std::string> names{name};
    while (names.size() < find_op(kind)->out.size()) names.push_back(name + std::to_string(names.size()));
    return forward.graph.add_op(kind, in, attrs, Phase::forward, -1, names).value()[0];
  }
  ValueId dropout(ValueId in, const std::string& name) {
    return add("dropout", {in, forward.samples, forward.positions, forward.step},
               {{"p", 0.5}, {"key", int64_t{1}}}, name);
  }
  std::vector<Pin>& pins(ValueId id) { return forward.graph.value(id).pins; }

  ForwardGraph forward;
  ValueId x, made, first, second;
};

std::vector<std::string> kinds(const Graph& graph) {
  std::vector<std::string> out;
  for (const Op& op : graph.ops()) out.emplace_back(op.def->kind);
  return out;
}

TEST(OutsideTraining, readers_of_an_op_of_training_alone_read_its_input) {
  const ForwardGraph out = outside_training(Model().forward);
  const Graph& graph = out.graph;
  EXPECT_EQ(kinds(graph), (std::vector<std::string>{"gelu", "gelu", "cross_entropy"}));
  EXPECT_EQ(graph.op(1).in, graph.op(0).out);
  EXPECT_EQ(graph.op(1).out[0], out.logits);
  EXPECT_EQ(graph.value(out.logits).name, "logits");
  EXPECT_EQ(graph.value(out.samples).name, "samples");
  EXPECT_EQ(graph.value(out.count).name, "loss1");
  EXPECT_EQ(graph.value(out.loss).producer, out.loss_op);
  EXPECT_EQ(graph.op(out.loss_op).in, (std::vector<ValueId>{out.logits, out.targets}));
  EXPECT_FALSE(graph.find("first"));
  EXPECT_FALSE(graph.find("second"));
  for (ValueId id = 0; id < graph.values().size(); ++id) {
    const Value& value = graph.value(id);
    if (value.producer == kNone) continue;
    EXPECT_EQ(std::ranges::count(graph.op(value.producer).out, id), 1) << value.name;
  }
}

TEST(OutsideTraining, logits_may_be_the_output_of_such_an_op) {
  Model model;
  model.forward.logits = model.second;
  const ForwardGraph out = outside_training(model.forward);
  EXPECT_EQ(out.graph.value(out.logits).name, "made");
}

TEST(OutsideTraining, what_was_pinned_of_the_output_is_pinned_of_the_input) {
  Model model;
  model.pins(model.made) = {{0, size_t{0}, "a"}};
  model.pins(model.first) = {{0, size_t{1}, "b"}, {1, size_t{1}, "b"}};
  model.pins(model.second) = {{1, size_t{2}, "c"}, {2, std::nullopt, "c"}};
  const ForwardGraph out = outside_training(model.forward);
  EXPECT_EQ(out.graph.value(*out.graph.find("made")).pins,
            (std::vector<Pin>{{0, size_t{0}, "a"}, {1, size_t{1}, "b"}, {2, std::nullopt, "c"}}));
}

TEST(OutsideTraining, parameters_rest_where_they_rest_in_training) {
  Model model;
  const ValueId dropped = model.dropout(model.x, "dropped");
  model.pins(dropped) = {{0, size_t{1}, "a"}};
  const ForwardGraph out = outside_training(model.forward);
  EXPECT_EQ(out.graph.value(*out.graph.find("x")).pins, std::vector<Pin>{});
}

}  // namespace
}  // namespace tenon
