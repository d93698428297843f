// What the strategies' pages say that each rank sends is what their programs send.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "strategy_programs.hpp"

namespace tenon::test {
namespace {

// Bytes that a member of a transfer sends with the usual algorithms: a ring, or all members' parts straight.
double sent(const Program& program, const Instr& instr) {
  const auto n = static_cast<double>(program.mesh.size(instr.axes));
  const double bytes = static_cast<double>((instr.kind == "all_gather" ? instr.out
                                            : instr.in.empty()         ? instr.out
                                                                       : instr.in)[0]
                                               .bytes());
  if (instr.kind == "all_reduce") return 2 * (n - 1) / n * bytes;
  if (instr.kind == "permute" || instr.kind == "send") return bytes;
  if (instr.kind == "recv") return 0;
  return (n - 1) / n * bytes;
}

template <class Which>
double volume(const Program& program, Which which) {
  double out = 0;
  for (const Instr& instr : program.instrs)
    if (instr.lane != 0 && which(instr)) out += sent(program, instr);
  return out;
}

const Program& program_of(const char* name, const char* model, decltype(Combination::mesh) mesh,
                          const char* strategies, int microbatches) {
  Combination c{name, model, std::move(mesh), strategies};
  c.microbatches = microbatches;
  return programs_of(c).front();
}

// Of buckets: gradients, or parameters.
double bucket_bytes(const Program& program) {
  double out = 0;
  for (const FlatLayout& layout : program.layouts)
    out += static_cast<double>(layout.elements) * sizeof(double);
  return out;
}

bool is_bucket(const Instr& instr) {
  const Operand& operand = instr.in[0];
  return instr.layout >= 0 || operand.name.starts_with("grad");
}

TEST(Volume, of_data_parallelism) {
  const Program& p = program_of("v_data", "gpt2", {{"dp", 4}}, "data", 2);
  EXPECT_DOUBLE_EQ(volume(p, is_bucket), 2 * 3.0 / 4 * bucket_bytes(p));
}

// Each microbatch gathers a bucket for its forward pass and again for its backward pass. That needs no table
// of an embedding, and finds the head, which was read last, still there; as the next forward pass finds the
// first layer's.
double gathered(const Program& program, double microbatches) {
  double out = 0;
  for (const FlatLayout& layout : program.layouts) {
    const auto holds = [&](std::string_view name) {
      return std::ranges::any_of(layout.leaves, [&](const FlatLayout::Leaf& leaf) {
        return program.params[leaf.param].name == name;
      });
    };
    double times = 2 * microbatches;
    if (holds("wte.weight") || holds("lm_head.weight")) times = microbatches;
    if (holds("h.0.attn.q.weight")) times = 2 * microbatches - (microbatches - 1);
    out += static_cast<double>(layout.elements) * sizeof(double) * times;
  }
  return out;
}

TEST(Volume, of_zero) {
  const double m = 2, n = 4;
  for (int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    const std::string name = fmt::format("v_zero{}", stage), words = fmt::format("data zero{}", stage);
    const Program& p = program_of(name.c_str(), "gpt2 untied", {{"dp", 4}}, words.c_str(), 2);
    const auto kind = [](const char* wanted) {
      return [wanted](const Instr& i) { return i.layout >= 0 && i.kind == wanted; };
    };
    EXPECT_DOUBLE_EQ(volume(p, kind("reduce_scatter")), (stage == 1 ? 1 : m) * (n - 1) / n * bucket_bytes(p));
    const double whole = stage == 3 ? gathered(p, m) : bucket_bytes(p);
    EXPECT_DOUBLE_EQ(volume(p, kind("all_gather")), (n - 1) / n * whole);
  }
}

// Parts are cut at whole granules, so the largest may be a little more than its share.
double largest_parts(const Program& program, size_t depth, double parts) {
  constexpr double kGranule = 16;
  double out = 0;
  for (const FlatLayout& layout : program.layouts) {
    const auto most = static_cast<double>(most_at(program.mesh, layout, depth));
    EXPECT_LE(most, static_cast<double>(layout.elements) / parts + kGranule);
    out += most * sizeof(double);
  }
  return out;
}

TEST(Volume, of_zero_with_gathers_within_a_sub_axis) {
  const double m = 2, near = 2, far = 2;
  const Program& p =
      program_of("v_near", "gpt2 untied", {{"dp_out", 2}, {"dp_in", 2}}, "data zero3:dp/dp_in", 2);
  const auto over = [&](const char* kind, const char* axis) {
    return volume(p, [&, id = *p.mesh.find(axis)](const Instr& i) {
      return i.layout >= 0 && i.kind == kind && i.axes[0] == id;
    });
  };
  EXPECT_DOUBLE_EQ(over("all_gather", "dp_in"), (near - 1) / near * gathered(p, m));
  EXPECT_DOUBLE_EQ(over("reduce_scatter", "dp_in"), m * (near - 1) / near * bucket_bytes(p));
  const double part = largest_parts(p, 1, near);
  EXPECT_DOUBLE_EQ(over("reduce_scatter", "dp_out"), m * (far - 1) / far * part);
  EXPECT_DOUBLE_EQ(over("all_gather", "dp_out"), (far - 1) / far * part);
}

// What one more layer adds to the transfers of a microbatch.
double of_layer(Combination c) {
  double more = 0;
  for (int layers : {3, 4}) {
    c.layers = layers;
    const std::vector<Program> programs = compile_document(recipe_of(c, "none", false), world_of(c)).programs;
    const double all =
        volume(programs.front(), [](const Instr& i) { return i.microbatch >= 0 && !is_bucket(i); });
    more = all / c.microbatches - more;
  }
  return more;
}

const Operand& operand_of(const Program& p, std::string_view kind, size_t input) {
  return std::ranges::find_if(p.instrs, [&](const Instr& i) { return i.kind == kind; })->in[input];
}

TEST(Volume, of_tensor_parallelism) {
  for (const char* words : {"tensor", "sequence"}) {
    SCOPED_TRACE(words);
    const Combination c{fmt::format("v_{}", words), "llama", {{"tp", 2}}, words, "", 2};
    const Program& p = programs_of(c).front();
    const double n = 2;
    const auto residual = std::ranges::find_if(p.instrs, [](const Instr& i) { return i.kind == "rmsnorm"; });
    const double whole =
        static_cast<double>(residual->in[0].bytes()) * (words == std::string("sequence") ? n : 1);
    EXPECT_DOUBLE_EQ(of_layer(c), 4 * 2 * (n - 1) / n * whole);
  }
}

TEST(Volume, of_context_parallelism) {
  for (const std::string exchange : {"ring", "all_gather", "all_to_all"}) {
    SCOPED_TRACE(exchange);
    const Combination c{"v_" + exchange, "llama", {{"cp", 4}}, exchange};
    const Program& p = programs_of(c).front();
    const double n = 4;
    const auto q = static_cast<double>(operand_of(p, "rope", 0).bytes());
    const double k = q;  // two query heads for each key head, and keys and values
    const double positions = 2 * (n - 1) * static_cast<double>(operand_of(p, "rope", 1).bytes());
    std::map<std::string, double> said{{"ring", (n - 1) * k + (n - 1) * k + n * k + positions},
                                       {"all_gather", 2 * (n - 1) * k},
                                       {"all_to_all", 2 * (n - 1) / n * (2 * q + k)}};
    EXPECT_DOUBLE_EQ(of_layer(c), said.at(exchange));
  }
}

}  // namespace
}  // namespace tenon::test
