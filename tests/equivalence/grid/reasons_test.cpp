// What the compiler says of its transfers is true: of cases of the grid, each reason is held against the
// placed graph and the rules, and each answer against what its collective can do.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>
#include <sstream>

#include "cases.h"
#include "graph/ops.h"
#include "plan/show/sentences.h"
#include "plan/show/stages.h"
#include "virtual_run.hpp"

namespace tenon::test {
namespace {

constexpr size_t kCases = 60;

// -- placements, as they are printed ----------------------------------------------------------------

// "S(batch)@dp,cp P@tp": by dim the axes that cut it, outer ones first; and the axes of partial sums.
struct Where {
  std::map<std::string, std::vector<std::string>> cuts;
  std::set<std::string> sums;

  auto operator<=>(const Where&) const = default;
  std::optional<std::string> dim_of(const std::string& axis) const {
    for (const auto& [dim, axes] : cuts)
      if (std::ranges::count(axes, axis) > 0) return dim;
    return std::nullopt;
  }
};

std::vector<std::string> words_of(const std::string& text, char separator) {
  std::vector<std::string> out;
  std::stringstream words(text);
  for (std::string word; std::getline(words, word, separator);) out.push_back(word);
  return out;
}

// Nothing where that is no placement.
std::optional<Where> where_of(const std::string& text) {
  Where out;
  for (const std::string& word : words_of(text.substr(0, text.find(" on ")), ' ')) {
    const auto at = word.find('@');
    if (word == "R") continue;
    if (at == std::string::npos) return std::nullopt;
    const auto axes = words_of(word.substr(at + 1), ',');
    if (word.starts_with("P@"))
      out.sums.insert(axes.begin(), axes.end());
    else if (word.starts_with("S(") && word[at - 1] == ')')
      out.cuts[word.substr(2, at - 3)] = axes;
    else
      return std::nullopt;
  }
  return out;
}

struct Move {
  std::string kind, axis;
  auto operator<=>(const Move&) const = default;
};

// All that a collective can make of a placement, cutting none but these dims.
std::vector<std::pair<Move, Where>> moves_from(const Where& from, const std::set<std::string>& axes,
                                               const std::set<std::string>& dims) {
  std::vector<std::pair<Move, Where>> out;
  const auto cut = [&](const std::string& kind, const std::string& axis, const Where& without,
                       const std::optional<std::string>& but) {
    for (const std::string& dim : dims) {
      if (dim == but) continue;
      Where to = without;
      to.cuts[dim].push_back(axis);
      out.push_back({{kind, axis}, to});
    }
  };
  for (const std::string& axis : axes) {
    Where without = from;
    if (from.sums.contains(axis)) {
      without.sums.erase(axis);
      out.push_back({{"all_reduce", axis}, without});
      cut("reduce_scatter", axis, without, std::nullopt);
    } else if (const auto dim = from.dim_of(axis)) {
      if (from.cuts.at(*dim).back() != axis) continue;
      without.cuts[*dim].pop_back();
      if (without.cuts[*dim].empty()) without.cuts.erase(*dim);
      out.push_back({{"all_gather", axis}, without});
      cut("all_to_all", axis, without, dim);
    } else {
      cut("slice", axis, from, std::nullopt);
    }
  }
  return out;
}

// How many collectives it takes from a placement to each other one.
std::map<Where, int> distances(const Where& from, const std::set<std::string>& axes,
                               const std::set<std::string>& dims) {
  std::map<Where, int> out{{from, 0}};
  std::deque<Where> next{from};
  for (; !next.empty(); next.pop_front()) {
    for (const auto& [move, to] : moves_from(next.front(), axes, dims))
      if (out.try_emplace(to, out.at(next.front()) + 1).second) next.push_back(to);
  }
  return out;
}

// Whether one of these collectives, over one axis or over all, is on a shortest way.
bool leads(const Where& had, const Where& wanted, const std::set<Move>& any) {
  std::set<std::string> axes, dims;
  for (const Where* where : {&had, &wanted}) {
    axes.insert(where->sums.begin(), where->sums.end());
    for (const auto& [dim, list] : where->cuts) {
      dims.insert(dim);
      axes.insert(list.begin(), list.end());
    }
  }
  std::erase_if(axes, [&](const std::string& axis) {  // what does not move
    const auto dim = had.dim_of(axis);
    return had.sums.contains(axis) == wanted.sums.contains(axis) && dim == wanted.dim_of(axis) &&
           (!dim || had.cuts.at(*dim) == wanted.cuts.at(*dim));
  });
  const auto from_had = distances(had, axes, dims);
  if (!from_had.contains(wanted)) return false;
  for (const auto& [at, steps] : from_had) {
    for (const auto& [move, to] : moves_from(at, axes, dims)) {
      if (!any.contains(move)) continue;
      const auto rest = distances(to, axes, dims);
      if (rest.contains(wanted) && steps + 1 + rest.at(wanted) == from_had.at(wanted)) return true;
    }
  }
  return false;
}

// -- reasons of a placed graph ----------------------------------------------------------------------

class Judge {
 public:
  Judge(const Graph& graph, const Mesh& mesh) : graph_(graph), mesh_(mesh) {}

  void run() const {
    for (const Op& op : graph_.ops()) {
      if (op.reason == kNone) continue;
      const Reason& reason = graph_.reasons.at(op.reason);
      SCOPED_TRACE(sentence_of(graph_, mesh_, reason) + " (" + op.def->kind + " over " +
                   mesh_.axes[op.axes[0]].name + ")");
      EXPECT_EQ(reason.had, graph_.value(reason.value).placement);
      EXPECT_TRUE(holds(reason, op.axes[0]));
      for (const Origin& origin : {reason.had_by, reason.wanted_by})
        EXPECT_TRUE(origin.by.empty() || said(origin));
    }
  }

 private:
  bool said(const Origin& origin) const {
    return std::ranges::any_of(graph_.value(origin.pinned).pins, [&](const Pin& pin) {
      return pin.axis == origin.axis && pin.by == origin.by;
    });
  }

  // A part of the reader: the factors of its dims.
  struct Part {
    bool operand = false;
    int index = 0;
    const std::vector<int>* factors = nullptr;
  };

  // What a value is to an op: an operand, a result, or one of whose gradient it is.
  std::vector<Part> parts_of(const Op& op, const Rule& rule, ValueId id) const {
    std::vector<Part> out;
    const auto add = [&](const std::vector<ValueId>& ids, bool operand) {
      for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] == kNone || graph_.made(ids[i]) != graph_.made(id)) continue;
        out.push_back({operand, static_cast<int>(i), operand ? &rule.inputs[i] : &rule.outputs[i]});
      }
    };
    add(op.in, true);
    add(op.out, false);
    add(op.grad_in, true);
    add(op.grad_out, false);
    return out;
  }

  bool holds(const Reason& reason, AxisId axis) const {
    if (reason.because == Reason::Because::output) return reason.wanted.is_replicated();
    if (reason.because == Reason::Because::pin) return !reason.wanted_by.by.empty();
    const Op& reader = graph_.op(reason.reader);
    const auto rule = rule_of(*reader.def, graph_.ranks_of(reader.in));
    if (!rule.ok()) return false;
    const auto parts = parts_of(reader, *rule, reason.value);
    return std::ranges::any_of(
        parts, [&](const Part& part) { return part.operand && holds(reason, axis, reader, *rule, part); });
  }

  bool holds(const Reason& reason, AxisId axis, const Op& reader, const Rule& rule, const Part& moved) const {
    const auto in_set = [&](int i, const std::vector<int>& set) { return std::ranges::count(set, i) > 0; };
    const auto linear =
        std::ranges::find_if(rule.linear, [&](const auto& set) { return in_set(moved.index, set); });
    const bool decided = reason.decider != kNone;
    const Placement* at = decided ? &graph_.value(reason.decider).placement : nullptr;
    switch (reason.because) {
      case Reason::Because::whole:
        return std::ranges::any_of(*moved.factors, [&](int f) {
          const Rule::Factor& factor = rule.factors[static_cast<size_t>(f)];
          return factor.name == reason.factor && factor.kind == Rule::Kind::whole;
        });
      case Reason::Because::no_partial:
        return !decided && reason.had.is_partial(axis) && linear == rule.linear.end();
      case Reason::Because::beside:
        if (!reason.had.is_partial(axis) || linear == rule.linear.end() || !decided) return false;
        return std::ranges::any_of(parts_of(reader, rule, reason.decider), [&](const Part& part) {
          return part.index != moved.index &&
                 (at->sharded_dim(axis) || at->is_partial(axis) != in_set(part.index, *linear));
        });
      case Reason::Because::operand:
        return decided && std::ranges::any_of(parts_of(reader, rule, reason.decider), [&](const Part& part) {
                 return leads_it(reason, axis, moved, part, *at);
               });
      case Reason::Because::as_forward: {
        const auto& ids = reader.grad_in;
        return decided && graph_.made(reason.decider) == reason.decider &&
               static_cast<size_t>(moved.index) < ids.size() &&
               ids[static_cast<size_t>(moved.index)] == reason.decider &&
               reason.wanted.sharded_dim(axis) == at->sharded_dim(axis);
      }
      case Reason::Because::in_place:
        return decided && reader.in[static_cast<size_t>(reader.def->inplace_input)] == reason.decider;
      case Reason::Because::accumulation: {
        const auto acc = [&](const Op& op) {
          return std::ranges::any_of(op.acc, [&](ValueId id) { return id == reason.decider; });
        };
        return decided && !at->sharded_dim(axis) && !at->is_partial(axis) &&
               (!reader.acc.empty() || std::ranges::any_of(graph_.ops(), acc));
      }
      default: return false;
    }
  }

  // The operand is cut over the axis as the decider is, on one factor; or it is not any more, because the
  // decider is cut over the axis, or otherwise on that factor.
  bool leads_it(const Reason& reason, AxisId axis, const Part& moved, const Part& part,
                const Placement& at) const {
    if (part.operand && part.index == moved.index) return false;
    const auto wanted = reason.wanted.sharded_dim(axis), cut = at.sharded_dim(axis);
    if (wanted) return cut && (*part.factors)[*cut] == (*moved.factors)[*wanted];
    if (cut) return true;
    const auto had = reason.had.sharded_dim(axis);
    if (!had) return false;
    for (size_t d = 0; d < part.factors->size(); ++d)
      if ((*part.factors)[d] == (*moved.factors)[*had] && !at.dims[d].empty()) return true;
    return false;
  }

  const Graph& graph_;
  const Mesh& mesh_;
};

// -- answers ----------------------------------------------------------------------------------------

struct Asked {
  std::vector<Program> programs;
  Graphs graphs;
  Mesh mesh;
};

Asked compile_document(const Json& document, int64_t world) {
  PluginRegistry registry(test_registry());
  const Recipe recipe = read_recipe(document).value();
  const PluginSet plugins = load_plugins(registry, recipe).value();
  Asked out;
  out.mesh = resolve_mesh(recipe.mesh, world).value();
  const CompileOptions options = compile_options(recipe, plugins, out.mesh).value();
  auto compiled = compile(recipe, ProgramKind::train, options);
  if (!compiled.ok()) return out;  // exact mode refuses some
  out.programs = std::move(compiled->programs);
  out.graphs = graphs_of(recipe, options);
  return out;
}

Asked compile_case(const Case& c, bool exact) {
  const Json document = together(c, "none");
  return compile_document(exact ? in_f32(document, true) : document, c.world());
}

// Every layer adds what the embedding gave: three stages read one value.
Json with_skips(Json document) {
  Json ops = Json::array();
  for (Json op : document["model"]["ops"]) {
    if (!op.contains("repeat")) {
      ops.push_back(op);
      continue;
    }
    const Json entry = op["carry"][0][0];
    ops.push_back({{"op", "add"}, {"in", {entry, entry}}, {"out", {"every"}}});
    for (Json& inner : op["ops"])
      for (Json& name : inner["in"])
        if (name == entry) name = "with_skip";
    op["ops"].insert(op["ops"].begin(),
                     Json{{"op", "add"}, {"in", {entry, "every"}}, {"out", {"with_skip"}}});
    ops.push_back(op);
  }
  document["model"]["ops"] = ops;
  return document;
}

// Nothing is named after the collectives that moved it.
void expect_real_names(const WhyRecord& record) {
  for (const std::string* text : {&record.value, &record.op, &record.had, &record.wanted, &record.because})
    EXPECT_EQ(text->find('|'), std::string::npos) << *text;
}

std::set<Move> moves_of(const Program& program, const Instr& instr) {
  std::vector<std::string> kinds{instr.kind};
  if (instr.why.tree) kinds = {"all_reduce", "reduce_scatter"};  // of which it is a part
  if (instr.kind == "permute") kinds = {"all_gather", "reduce_scatter"};
  if (instr.kind == "all_gather" && instr.why.because == Why::Because::op) kinds.push_back("all_reduce");
  std::set<Move> out;
  for (const std::string& kind : kinds)
    for (AxisId axis : instr.axes) out.insert({kind, program.mesh.axes[axis].name});
  return out;
}

// The value that a record names has been where the record says that it was.
bool was_there(const Graph& graph, const Mesh& mesh, const WhyRecord& record) {
  const std::string name = record.value.substr(0, record.value.find(' '));
  for (ValueId id = 0; id < graph.values().size(); ++id)
    if (shown_name(graph, id) == name && placement_text(graph, mesh, id) == record.had) return true;
  return false;
}

// What a reduction of a bucket says of all of its gradients.
void expect_partial_sums(const Program& program, const Instr& instr, const JointGraph& joint) {
  const auto& name = joint.graph.value(instr.why.value).name;
  const auto info = std::ranges::find(program.params, name, &TensorInfo::name);
  for (const FlatLayout::Leaf& leaf : program.layouts[info->layout].leaves) {
    const auto grad = std::ranges::find_if(joint.leaves, [&](const LeafGrad& one) {
      return joint.graph.value(one.param).name == program.params[leaf.param].name;
    });
    for (AxisId axis : instr.axes) {
      EXPECT_TRUE(joint.graph.value(grad->grad).placement.is_partial(axis))
          << joint.graph.value(grad->grad).name;
    }
  }
}

// Of each class of ranks the stages that its rows are of.
std::vector<std::set<int>> stages_of(const std::vector<Program>& programs) {
  std::vector<std::set<int>> out;
  for (const Program& program : programs) {
    std::set<int>& stages = out.emplace_back();
    for (const Instr& instr : program.instrs)
      if (instr.microbatch >= 0 && !is_transfer(instr) && instr.phase != Phase::step)
        stages.insert(instr.stage);
  }
  return out;
}

// "S(batch)@dp on stage 2": 2.
int stage_in(const std::string& text) { return std::stoi(text.substr(text.rfind(' ') + 1)); }

// A transfer between stages: an op of the sender's stage makes the value, one of the receiver's reads it.
void expect_stages(const Program& program, const Instr& instr, const JointGraph& joint,
                   const WhyRecord& record, const std::vector<std::set<int>>& stages) {
  const bool sends = instr.kind == "send";
  const auto here = static_cast<size_t>(program.class_index), there = static_cast<size_t>(instr.peer);
  const int made = stage_in(record.had), read = stage_in(record.wanted);
  EXPECT_TRUE(stages[sends ? here : there].contains(made));
  EXPECT_TRUE(stages[sends ? there : here].contains(read));
  const ValueId id = instr.why.value;
  const Graph& graph = joint.graph;
  EXPECT_EQ(graph.op(graph.value(id).producer).stage, made);
  EXPECT_EQ(record.stage, sends ? made : read);
  // It is read at once, or by collectives, which are named, for an op that is none.
  const std::string reader = record.because.substr(0, record.because.find(' '));
  EXPECT_TRUE(record.because.starts_with(reader + " on stage " + std::to_string(read)));
  EXPECT_TRUE(record.op.starts_with(reader + ":")) << "of which place and layer are told";
  ASSERT_NE(find_kind(reader), nullptr);
  EXPECT_NE(find_kind(reader)->runner, OpRunner::comm);
  EXPECT_TRUE(std::ranges::any_of(graph.ops(), [&](const Op& op) {
    const std::string kind = op.def->kind;
    return op.stage == read && op.phase != Phase::step && std::ranges::count(op.in, id) > 0 &&
           (kind == reader || record.because.find(" reads it, by way of " + kind) != std::string::npos);
  }));
}

int expect_true_answers(const Program& program, const JointGraph& joint,
                        const std::vector<std::set<int>>& stages) {
  const RecipeSource source{[](const std::string& pointer) { return pointer; }, {}};
  std::map<std::tuple<Where, Where, std::set<Move>>, bool> led;  // asked once for equal ones
  int transfers = 0;
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    const Instr& instr = program.instrs[id];
    const WhyRecord record = why(program, id, joint, source, Machine{});
    expect_real_names(record);
    if (!is_transfer(instr)) continue;
    ++transfers;
    SCOPED_TRACE(text(record));
    EXPECT_FALSE(record.because.empty());
    EXPECT_FALSE(record.op.empty());
    EXPECT_TRUE(!record.rule.empty() || !record.strategies.empty());
    const auto because = instr.why.because;
    if (because == Why::Because::tied || because == Why::Because::updated) continue;
    const auto had = where_of(record.had), wanted = where_of(record.wanted);
    EXPECT_TRUE(had && wanted);
    if (!had || !wanted || record.had.empty() || record.wanted.empty()) {
      ADD_FAILURE() << "no placements";
      continue;
    }
    if (because == Why::Because::stage || because == Why::Because::output) {
      EXPECT_EQ(had, wanted);
      EXPECT_NE(record.had, record.wanted);
      if (because == Why::Because::stage) expect_stages(program, instr, joint, record, stages);
      continue;
    }
    const std::set<Move> moves = moves_of(program, instr);
    const auto [known, fresh] = led.try_emplace({*had, *wanted, moves});
    if (fresh) known->second = leads(*had, *wanted, moves);
    EXPECT_TRUE(known->second);
    if (because == Why::Because::op && joint.graph.op(instr.why.op).reason != kNone) {
      EXPECT_TRUE(was_there(joint.graph, program.mesh, record));
    }
    if (because == Why::Because::gradient) expect_partial_sums(program, instr, joint);
  }
  return transfers;
}

class Reasons : public testing::TestWithParam<Case> {};

TEST_P(Reasons, are_true) {
  for (const bool exact : {false, true}) {
    SCOPED_TRACE(exact ? "exact" : "fast");
    const Asked asked = compile_case(GetParam(), exact);
    ASSERT_TRUE(exact || !asked.programs.empty());
    if (asked.programs.empty()) continue;
    Judge(*asked.graphs.placed, asked.mesh).run();
    Judge(asked.graphs.joint->graph, asked.mesh).run();
    int transfers = 0;
    for (const Program& program : asked.programs)
      transfers += expect_true_answers(program, *asked.graphs.joint, stages_of(asked.programs));
    EXPECT_TRUE(transfers > 0 || GetParam().world() == 1);
    const RecipeSource source{[](const std::string& pointer) { return pointer; }, {}};
    for (const GraphStage stage : {GraphStage::model, GraphStage::placed, GraphStage::joint})
      EXPECT_EQ(text(asked.graphs, stage, asked.mesh, source).find('|'), std::string::npos);
  }
}

TEST(ReasonsOfSkips, are_true_where_several_stages_read_a_value) {
  for (const Pipeline& pipeline : {Pipeline{3, 1, "1f1b"}, Pipeline{2, 2, "interleaved"}}) {
    Case c;
    c.model = "llama";
    c.layers = 4;
    c.pipeline = pipeline;
    c.microbatches = 4;
    c.optimizer = "sgd";
    c.order = {"pp"};
    const Asked asked = compile_document(with_skips(together(c, "none")), c.world());
    ASSERT_EQ(asked.programs.size(), static_cast<size_t>(pipeline.ranks));
    std::set<std::pair<int, std::string>> answers;  // of what the first rank sends: to whom, and why
    const RecipeSource source{[](const std::string& pointer) { return pointer; }, {}};
    const Program& first = asked.programs[0];
    for (InstrId id = 0; id < first.instrs.size(); ++id) {
      const WhyRecord record = why(first, id, *asked.graphs.joint, source, Machine{});
      if (first.instrs[id].kind == "send" && record.value.starts_with("every"))
        answers.emplace(first.instrs[id].peer, record.wanted);
    }
    EXPECT_EQ(answers.size(), static_cast<size_t>(pipeline.ranks - 1));
    for (const Program& program : asked.programs)
      EXPECT_GT(expect_true_answers(program, *asked.graphs.joint, stages_of(asked.programs)), 0);
  }
}

// One sum of squared norms is of buckets that different strategies cut.
TEST(ReasonsOfNorms, name_all_who_cut_what_is_summed) {
  Case c;
  c.model = "moe";
  c.data.inner = 2;
  c.zero.stage = 2;
  c.experts = "dp";
  c.optimizer = "adamw";
  c.order = {"dp"};
  const Asked asked = compile_document(together(c, "none"), c.world());
  ASSERT_EQ(asked.programs.size(), 1u);
  const Program& program = asked.programs[0];
  const RecipeSource source{[](const std::string& pointer) { return pointer; }, {}};
  std::set<std::set<std::string>> named;  // by each sum
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    const Instr& instr = program.instrs[id];
    if (instr.why.because != Why::Because::norm || !is_transfer(instr)) continue;
    const WhyRecord record = why(program, id, *asked.graphs.joint, source, Machine{});
    std::set<std::string> strategies;
    for (const Involved& involved : record.strategies) strategies.insert(involved.id);
    named.insert(strategies);
  }
  EXPECT_TRUE(named.contains({"parallel/expert", "parallel/zero"}));
}

std::vector<Case> some_cases() {
  std::vector<Case> out = shuffled();
  out.resize(std::min(out.size(), kCases));
  return out;
}

INSTANTIATE_TEST_SUITE_P(grid, Reasons, testing::ValuesIn(some_cases()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace tenon::test
