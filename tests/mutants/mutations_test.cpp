// The mutations themselves: every field that is read has one, each changes something, and none outlives its
// mutant.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "fields.h"
#include "judge.h"
#include "recipes.h"

namespace tenon::mutants {
namespace {

TEST(Mutations, every_field_is_changed_or_nothing_reads_it) {
  std::set<std::string> changed, named;
  for (const Mutation& mutation : mutations()) changed.insert(mutation.field);
  for (const Field& field : fields()) {
    named.insert(field.name);
    EXPECT_TRUE(changed.count(field.name) > 0 || *field.unread != 0) << field.name;
  }
  for (const std::string& field : changed) EXPECT_EQ(named.count(field), 1u) << field << " is no field";
}

TEST(Mutations, have_names_of_their_own) {
  std::set<std::pair<std::string, std::string>> known;
  for (const Mutation& mutation : mutations())
    EXPECT_TRUE(known.insert({mutation.field, mutation.name}).second)
        << mutation.field << " " << mutation.name;
}

// All that a program is, fields that no text of it has too.
std::string whole(const Program& program) {
  std::string out = program.name + program.mesh.text() + std::to_string(program.microbatches);
  const auto add = [&out](auto... values) { ((out += fmt::format(" {}", values)), ...); };
  const auto operand = [&](const Operand& o) {
    out += " " + o.name;
    add(o.buffer, o.offset, static_cast<int>(o.dtype));
    for (int64_t size : o.dims) add(size);
  };
  const auto axes = [&](const std::vector<AxisId>& list) {
    for (AxisId axis : list) add(axis);
    out += ";";
  };
  for (const std::string& lane : program.lanes) out += lane + ",";
  for (const Buffer& b : program.buffers) {
    out += b.name;
    add(static_cast<int>(b.space), b.bytes, b.offset, b.gaps);
  }
  for (const Instr& i : program.instrs) {
    out += "\n" + i.kind;
    add(static_cast<int>(i.phase), i.microbatch, i.layer, i.stage, i.lane, i.accumulate, i.inplace,
        i.offset_step, static_cast<int>(i.reduction), i.peer, i.layout, i.flops,
        static_cast<int>(i.why.because), i.why.tree, i.why.op, i.why.value, i.why.stage, i.fused.size());
    for (const Operand& o : i.in) operand(o);
    out += "->";
    for (const Operand& o : i.out) operand(o);
    operand(i.workspace);
    for (const auto& [key, value] : i.attrs) {
      out += key;
      std::visit([&](auto number) { add(number); }, value);
    }
    axes(i.axes);
    for (InstrId wait : i.waits) add(wait);
  }
  for (const auto* tensors : {&program.params, &program.states}) {
    out += "\n";
    for (const TensorInfo& t : *tensors) {
      out += t.name;
      operand(t.operand);
      for (const Dim& dim : t.dims) out += dim.name + std::to_string(dim.size);
      for (const auto& dim : t.placement.dims) axes(dim);
      for (const Partial& partial : t.placement.partials) add(partial.axis);
      add(static_cast<int>(t.init.kind), t.init.scale, t.layout, t.leaf, t.depth, t.copy);
    }
  }
  for (const auto& set : program.inputs) {
    out += "\n";
    for (const auto& [name, o] : set) {
      out += name;
      operand(o);
    }
  }
  for (const auto& [name, o] : program.outputs) {
    out += name;
    operand(o);
  }
  axes(program.batch_axes);
  axes(program.seq_axes);
  for (const FlatLayout& l : program.layouts) {
    out += "\n";
    for (const auto& leaf : l.leaves) add(leaf.param, leaf.first, leaf.count, leaf.group);
    add(l.elements, l.level, l.param_depth);
    axes(l.axes);
    for (int64_t cut : l.cuts) add(cut);
  }
  add(program.pipeline_axis, program.class_index, program.kernel_private_bytes, program.flops);
  for (uint64_t bytes : program.space_bytes) add(bytes);
  for (const Axis& axis : program.mesh.axes) out += axis.name;
  return out;
}

// Some ways of each site: what says that it changes nothing does not.
void expect_unchanged(const Mutation& mutation, const std::vector<Program>& programs,
                      const std::string& sound) {
  constexpr size_t kSites = 3;
  const Sites sites = mutation.sites(programs, 0);
  for (size_t i = 0; i < kSites && !sites.empty(); ++i) {
    const Site& site = sites[i * sites.size() / kSites];
    if (site.ways == 0) continue;
    std::vector<Program> changed = programs;
    if (site.apply(changed, 0, i * site.ways / kSites).empty()) {
      EXPECT_EQ(whole(changed[0]), sound) << mutation.field << ": " << mutation.name;
    }
  }
}

// Every kind of change makes some, in one recipe or another. (Two entries that are alike are exchanged in
// vain.)
TEST(Mutations, change_what_they_say) {
  std::set<size_t> effective;
  for (const NamedRecipe& recipe : recipes()) {
    const Subject subject(recipe.name, recipe.document);
    std::map<Part, std::vector<std::string>> sound;
    for (Part part : kParts) {
      for (const Program& program : subject.compiled(part).programs) sound[part].push_back(whole(program));
      for (const Mutation& mutation : mutations())
        expect_unchanged(mutation, subject.compiled(part).programs, sound[part][0]);
    }
    for (const Mutant& mutant : mutants_of(subject, 1, 7)) {
      std::vector<Program> changed = subject.compiled(mutant.part).programs;
      const std::string what = apply(mutant, subject, changed);
      bool different = false;
      for (size_t p = 0; p < changed.size(); ++p) different |= whole(changed[p]) != sound[mutant.part][p];
      if (different) effective.insert(mutant.mutation);
      EXPECT_TRUE(different || what.find("exchanged") != std::string::npos)
          << mutations()[mutant.mutation].field << ": " << what;
    }
  }
  for (size_t m = 0; m < mutations().size(); ++m)
    EXPECT_EQ(effective.count(m), 1u)
        << mutations()[m].field << ": " << mutations()[m].name << " changes nothing";
}

TEST(Mutants, are_the_same_for_the_same_seed) {
  const Subject subject(recipes().front().name, recipes().front().document);
  const auto numbers = [&](uint64_t seed) {
    std::vector<uint64_t> out;
    for (const Mutant& mutant : mutants_of(subject, 2, seed)) out.push_back(mutant.number);
    return out;
  };
  EXPECT_EQ(numbers(1), numbers(1));
  EXPECT_NE(numbers(1), numbers(2));
}

}  // namespace
}  // namespace tenon::mutants
