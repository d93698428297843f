#include "drawn_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "draws.h"

namespace tenon::test {
namespace {

// Kept: another seed is another set of cases.
constexpr uint64_t kCaseSeed = 1511, kExactSeed = 3019;
constexpr uint64_t kDrawsOfOne = uint64_t{1} << 20;
constexpr int kMostDrawnRanks = 20, kMostOtherRanks = 4, kMostSamples = 32;

const std::vector<std::string> kExchanges{"ring", "all_gather", "all_to_all"};
const std::vector<std::string> kAxes{"pp", "dp_out", "dp_in", "cp", "tp"};

Pipeline draw_pipeline(Draws& draws, const std::vector<int>& ranks) {
  Pipeline out{draws.one_of(ranks), 1, ""};
  if (out.ranks == 1) return out;
  out.schedule = draws.one_of(kSchedules);
  if (out.schedule == "interleaved") out.stages = draws.between(2, 3);
  if (out.schedule == "zb-v" || out.schedule == "dualpipe-v") out.stages = 2;
  return out;
}

// What the strategies ask of sizes: each cut dim is a multiple of the ranks that cut it.
void draw_sizes(Draws& draws, Case& c) {
  const int cp = c.context.ranks, tp = c.tensor.ranks;
  Sizes& s = c.sizes;
  c.layers = c.pipeline.ranks * c.pipeline.stages + draws.below(3);
  s.groups = tp * (c.context.exchange == "all_to_all" ? cp : 1);
  s.groups *= s.groups < 4 ? draws.between(1, 3) : 1;
  s.head = c.model.starts_with("gpt2") ? draws.between(1, 3) : 2;  // rope turns pairs
  s.width = draws.between(5, 11);
  s.ffn = tp * draws.between(1, tp > 2 ? 2 : 4);
  s.vocab = 256 + draws.between(0, 6);
  if (c.tensor.vocabulary) s.vocab = (s.vocab + tp - 1) / tp * tp;
  s.routed = draws.between(1, 3);
  const int parts = std::lcm(2 * cp, cp * (c.tensor.sequence ? tp : 1)) * (c.model == "moe" ? s.routed : 1);
  s.context = parts * std::max(1, draws.between(6, 17) / parts);
}

std::string draw_experts(Draws& draws, Case& c, const std::vector<std::string>& axes) {
  if (c.model != "moe") return "";
  const std::string axis = axes.empty() || draws.coin() ? "" : draws.one_of(axes);
  const int cut = axis == "dp"      ? c.data.ranks()
                  : axis == "dp_in" ? c.data.inner
                  : axis == "cp"    ? c.context.ranks
                                    : 1;
  c.sizes.experts = std::max(2, cut * draws.between(1, 3));
  return axis;
}

void draw_rest(Draws& draws, Case& c) {
  c.optimizer = draws.coin() ? "sgd" : "adamw";
  c.padded = draws.coin();
  c.order = draws.shuffled(kAxes);
  c.reversed = draws.coin();
}

Context draw_context(Draws& draws, const std::vector<int>& ranks) {
  const int n = draws.one_of(ranks);
  return {n, n > 1 ? draws.one_of(kExchanges) : ""};
}

Tensor draw_tensor(Draws& draws, const std::vector<int>& ranks) {
  return {draws.one_of(ranks), draws.coin(), draws.coin()};
}

Zero draw_zero(Draws& draws, const Data& data) {
  Zero out{data.ranks() > 1 ? draws.below(4) : 0, "dp", ""};
  if (out.stage == 0 || !data.in_parts()) return out;
  out.axis = draws.one_of<std::string>({"dp", "dp_in", "dp_out"});
  if (out.stage == 3 && out.axis == "dp") out.within = draws.one_of<std::string>({"", "dp_in", "dp_out"});
  return out;
}

Case draw_case(Draws& draws) {
  Case c;
  c.model = draws.one_of(kModels);
  c.pipeline = draw_pipeline(draws, {1, 1, 2, 3, 4, 5});
  c.data = draws.one_of<Data>({{1, 1}, {1, 2}, {1, 3}, {1, 5}, {1, 7}, {2, 2}, {2, 3}, {3, 2}});
  c.context = draw_context(draws, {1, 1, 1, 2, 3, 5});
  c.tensor = draw_tensor(draws, {1, 1, 1, 2, 3, 5});
  c.microbatches = draws.between(1, 5);
  c.sizes.batch = c.microbatches * c.data.ranks() * draws.between(1, 3);
  draw_sizes(draws, c);
  c.zero = draw_zero(draws, c.data);
  std::vector<std::string> axes;
  if (c.data.ranks() > 1) axes.emplace_back("dp");
  if (c.data.in_parts()) axes.emplace_back("dp_in");
  if (c.context.ranks > 1) axes.emplace_back("cp");
  c.experts = draw_experts(draws, c, axes);
  c.idle_axes = draws.below(8) == 0;
  draw_rest(draws, c);
  return c;
}

ExactCombination draw_exact(Draws& draws) {
  ExactCombination out;
  Case& c = out.rest;
  c.model = draws.one_of(kModels);
  c.pipeline = draw_pipeline(draws, {1, 1, 2, 2, 3, 4});
  c.context = draw_context(draws, {1, 1, 2, 3});
  c.tensor = draw_tensor(draws, {1, 1, 2, 3});
  c.sizes.batch = 16;
  out.shards = draws.one_of<int>({8, 16});
  draw_sizes(draws, c);
  c.sizes.width =
      draws.one_of<int>({7, 20, 48});  // 48: a table longer than the chunks in which norms are added
  c.data.kept = true;
  c.data.split = draws.coin();
  if (c.data.split)
    out.outer = {1, draws.one_of<int>({1, 2}), draws.one_of<int>({1, 2, 4}), draws.one_of<int>({2, 4})};
  if (c.data.split) {
    c.zero.axis = draws.one_of<std::string>({"dp", "dp", "dp_in", "dp_out"});
    if (c.zero.axis == "dp") c.zero.within = draws.one_of<std::string>({"", "dp_in", "dp_out"});
  }
  c.experts = draw_experts(draws, c,
                           c.context.ranks > 1 ? std::vector<std::string>{"cp"} : std::vector<std::string>{});
  draw_rest(draws, c);
  return out;
}

}  // namespace

Case drawn_case(uint64_t number) {
  Draws draws(kCaseSeed * kDrawsOfOne + number);
  for (;;) {
    Case c = draw_case(draws);
    if (c.world() > 1 && c.world() <= kMostDrawnRanks && c.sizes.batch <= kMostSamples) return c;
  }
}

ExactCombination drawn_exact(uint64_t number) {
  Draws draws(kExactSeed * kDrawsOfOne + number);
  for (;;) {
    ExactCombination out = draw_exact(draws);
    if (out.rest.world() <= kMostOtherRanks) return out;
  }
}

Case ExactCombination::member(size_t data, int stage) const {
  Case out = rest;
  out.data.outer = outer[data];
  out.data.inner = kDataRanks[data] / outer[data];
  out.zero.stage = stage;
  if (stage < 3) out.zero.within.clear();
  return out;
}

std::string ExactCombination::name() const {
  return fmt::format("{}_shards{}{}{}", rest.name(), shards,
                     rest.zero.axis == "dp" ? "" : "_" + rest.zero.axis,
                     rest.zero.within.empty() ? "" : "_within_" + rest.zero.within);
}

}  // namespace tenon::test
