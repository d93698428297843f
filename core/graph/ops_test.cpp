// The op table says nothing that does not hold together: names, kinds and attributes of a row exist where it
// says.
#include "graph/ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

namespace tenon {
namespace {

bool has(const std::vector<OperandDef>& operands, const std::string& name) {
  return find_operand(operands, name).has_value();
}

bool has_attr(const OpDef& def, const std::string& name) {
  return std::ranges::count(def.attr_defs, name, &AttrDef::name) > 0;
}

std::vector<std::string> words(const char* text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

// What is wrong with the row of a backward op; "": nothing.
std::string fault_of(const OpDef& forward, const OpDef& back) {
  for (const OperandDef& operand : back.in) {
    const bool gradient = operand.name[0] == 'd' && has(forward.out, operand.name.substr(1));
    if (!gradient && !has(forward.in, operand.name) && !has(forward.out, operand.name))
      return "no operand " + operand.name;
  }
  for (const OperandDef& operand : back.out) {
    if (operand.name[0] != 'd' || !has(forward.in, operand.name.substr(1)))
      return operand.name + " is no gradient";
  }
  for (const AttrDef& attr : back.attr_defs) {
    const bool sized = std::ranges::count(back.out_notes, attr.name, &SizeNote::attr) > 0;
    if (!has_attr(forward, attr.name) && !sized) return "nobody gives " + attr.name;
  }
  return "";
}

TEST(OpTableTest, KindsAreThereOnce) {
  std::set<std::string> kinds;
  for (const OpDef& def : op_table()) {
    EXPECT_TRUE(kinds.insert(def.kind).second) << def.kind;
    EXPECT_EQ(find_kind(def.kind), &def);
    EXPECT_EQ(find_op(def.kind), def.use == OpUse::graph ? &def : nullptr) << def.kind;
  }
}

TEST(OpTableTest, GradientsFindTheirOperandsByName) {
  int found = 0;
  for (const OpDef& def : op_table()) {
    for (const std::string kind : {def.weight_grad, def.input_grad}) {
      if (kind.empty()) continue;
      const OpDef* back = find_op(kind);
      ASSERT_NE(back, nullptr) << kind;
      EXPECT_EQ(fault_of(def, *back), "") << kind;
      ++found;
    }
    for (const std::string& name : words(def.passes)) EXPECT_TRUE(has(def.in, name)) << def.kind;
  }
  EXPECT_GT(found, 15);
  OpDef wrong = *find_op("gelu_dgrad");
  wrong.in[1].name = "z";
  EXPECT_EQ(fault_of(*find_op("gelu"), wrong), "no operand z");
  wrong = *find_op("rmsnorm_dgrad");
  wrong.out[0].name = "dy";
  EXPECT_EQ(fault_of(*find_op("rmsnorm"), wrong), "dy is no gradient");
  EXPECT_EQ(fault_of(*find_op("gelu"), *find_op("gelu_dgrad")), "");
}

TEST(OpTableTest, AnOpOfTrainingAloneHasAnInputThatCanStandForItsOneOutput) {
  int found = 0;
  for (const OpDef& def : op_table()) {
    if (*def.training_only == '\0') continue;
    ++found;
    ASSERT_EQ(def.out.size(), 1u) << def.kind;
    ASSERT_TRUE(has(def.in, def.training_only)) << def.kind;
    const OperandDef& input = def.in[def.input(def.training_only)];
    EXPECT_EQ(input.dims, def.out[0].dims) << def.kind;
    EXPECT_EQ(input.type, def.out[0].type) << def.kind;
  }
  EXPECT_GT(found, 0);
}

TEST(OpTableTest, AShardTakesAllAttributesOfItsOpThatAKernelNeeds) {
  int found = 0;
  for (const OpDef& def : op_table()) {
    if (def.offset[0] == '\0') continue;
    const OpDef* shard = find_kind(def.shard_kind);
    ASSERT_NE(shard, nullptr) << def.kind;
    EXPECT_EQ(shard->use, OpUse::piece) << def.kind;
    EXPECT_TRUE(has_attr(*shard, "start")) << def.kind;
    for (const AttrDef& attr : def.attr_defs)
      EXPECT_TRUE(attr.of_graph || has_attr(*shard, attr.name)) << def.kind;
    ++found;
  }
  EXPECT_EQ(found, 3);
}

TEST(OpTableTest, AttributesOfACutOpAreKept) {
  OpDef shard;
  shard.attr_defs = {{"start", true, false}, {"cap", false, false}};
  const Attrs whole{{"cap", 30.0}, {"rows", int64_t{8}}};
  EXPECT_EQ(part_attrs(shard, whole), (Attrs{{"start", int64_t{0}}, {"cap", 30.0}}));
  OpDef part;
  part.attr_defs = {{"rows", true, false}};
  EXPECT_EQ(part_attrs(part, whole), (Attrs{{"rows", int64_t{8}}}));
}

// Every operand of a part is the row's or an earlier part's, and all of the row's outputs are made.
TEST(OpTableTest, PartsMakeWhatTheirRowPromises) {
  for (const OpDef& def : op_table()) {
    EXPECT_TRUE(def.use != OpUse::fused || def.made_of.size() > 1) << def.kind;
    std::set<std::string> there;
    for (const OperandDef& operand : def.in) there.insert(operand.name);
    for (const PartDef& part : def.made_of) {
      const OpDef* kind = find_kind(part.kind);
      ASSERT_NE(kind, nullptr) << def.kind << ": " << part.kind;
      EXPECT_EQ(part.in.size(), kind->in.size()) << def.kind << ": " << part.kind;
      EXPECT_EQ(part.out.size(), kind->out.size()) << def.kind << ": " << part.kind;
      for (const std::string& name : part.in) EXPECT_TRUE(there.contains(name)) << def.kind << ": " << name;
      there.insert(part.out.begin(), part.out.end());
    }
    if (def.made_of.empty()) continue;
    for (const AttrDef& attr : def.attr_defs) {
      EXPECT_TRUE(std::ranges::any_of(
          def.made_of, [&](const PartDef& part) { return has_attr(*find_kind(part.kind), attr.name); }))
          << def.kind << ": " << attr.name;
    }
    for (const OperandDef& operand : def.out)
      EXPECT_TRUE(there.contains(operand.name)) << def.kind << ": " << operand.name;
  }
}

TEST(OpTableTest, AKindThatComputesAnothersResultHasItsOperands) {
  for (const OpDef& def : op_table()) {
    const OpDef* same = find_op(def.computes);
    EXPECT_EQ(same == nullptr, def.computes[0] == '\0') << def.kind;
    if (same == nullptr) continue;
    EXPECT_EQ(same->in.size(), def.in.size()) << def.kind;
    EXPECT_EQ(same->out.size(), def.out.size()) << def.kind;
  }
}

TEST(OpTableTest, TotalsAndAttributesThatSomebodyReadsAreOfTheRow) {
  const auto whole = [](const OpDef& def, const char* name) {
    return std::ranges::any_of(def.attr_defs,
                               [&](const AttrDef& attr) { return attr.name == name && attr.integer; });
  };
  size_t found = 0;
  for (const OpDef& def : op_table()) {
    for (const char* total : {def.loss, def.count}) {
      if (*total == '\0') continue;
      ++found;
      ASSERT_TRUE(has(def.out, total)) << def.kind;
      EXPECT_TRUE(def.out[def.output(total)].dims.empty()) << def.kind << " " << total;
    }
    for (const char* attr : {def.random_key, def.token_group})
      EXPECT_TRUE(*attr == '\0' || whole(def, attr)) << def.kind << " " << attr;
  }
  EXPECT_GT(found, 5u);
}

// "theta float >0", "d%2" as rows write them, and what a size must be by "n=s/group".
TEST(OpTableTest, LimitsAreRead) {
  const AttrDef& p = find_op("dropout")->attr_defs[0];
  EXPECT_EQ(p.name, "p");
  ASSERT_EQ(p.bounds.size(), 2u);
  const auto inside = [&](double value) {
    return std::ranges::all_of(p.bounds,
                               [&](const AttrBound& bound) { return keeps(bound.limit, value, bound.than); });
  };
  EXPECT_TRUE(inside(0) && inside(0.5));
  EXPECT_FALSE(inside(-0.1) || inside(1) || inside(std::nan("")));
  const std::vector<SizeLimit>& rope = find_op("rope")->size_limits;
  ASSERT_EQ(rope.size(), 1u);
  EXPECT_EQ(rope[0].letter + " " + words_of(rope[0].limit).words + " " + rope[0].than, "d divisible by 2");
  const std::vector<SizeLimit>& slots = find_op("dispatch")->size_limits;
  ASSERT_EQ(slots.size(), 1u);
  EXPECT_EQ(slots[0].letter + " " + words_of(slots[0].limit).words + " " + slots[0].than,
            "s divisible by group");
}

// So that no size is 0, and none is divided by 0.
TEST(OpTableTest, AttributesThatSayASizeAreWholeAndAtLeastOne) {
  int found = 0;
  for (const OpDef& def : op_table()) {
    std::vector<std::string> names;
    for (const auto* notes : {&def.in_notes, &def.out_notes}) {
      for (const SizeNote& note : *notes) names.push_back(note.attr);
    }
    for (const SizeLimit& limit : def.size_limits) {
      if (has_attr(def, limit.than)) names.push_back(limit.than);
    }
    for (const std::string& name : names) {
      const auto attr = std::ranges::find(def.attr_defs, name, &AttrDef::name);
      ASSERT_NE(attr, def.attr_defs.end()) << def.kind << " " << name;
      EXPECT_TRUE(attr->integer) << def.kind << " " << name;
      EXPECT_TRUE(std::ranges::any_of(
          attr->bounds,
          [](const AttrBound& bound) { return bound.limit == Limit::at_least && bound.than >= 1; }))
          << def.kind << " " << name;
      ++found;
    }
  }
  EXPECT_GT(found, 10);
}

TEST(OpTableTest, LettersOfDimsHaveNames) {
  for (const OpDef& def : op_table()) {
    for (const auto* operands : {&def.in, &def.out}) {
      for (const OperandDef& operand : *operands) {
        for (const std::string& dim : operand.dims) {
          const bool known = dim == "?" || dim.ends_with("..") ||
                             std::ranges::count(dim_letters(), dim, &DimLetter::letter) > 0;
          EXPECT_TRUE(known) << def.kind << " " << operand.name << " " << dim;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tenon
