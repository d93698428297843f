#include "further_cases.h"

namespace tenon::test {
namespace {

constexpr size_t kOfEach = 40;

// Key-value heads that ranks share, of which each has a part of the query heads: fewer than ranks, or more,
// but not a multiple of them.
bool shares_heads(Case& c) {
  if (c.tensor.ranks == 1 || c.model.starts_with("gpt2")) return false;
  c.sizes.groups = c.layers % 3 == 0 ? 3 * c.tensor.ranks / 2 : c.layers % 2 == 0 ? c.tensor.ranks / 2 : 1;
  c.sizes.reps = c.tensor.ranks;
  return c.context.exchange != "all_to_all";  // which would cut the groups once more
}

bool has_stages_apart(Case& c) {
  const int stages = c.pipeline.ranks * c.pipeline.stages;
  if (stages == 1) return false;
  constexpr const char* kApart[] = {"both", "embedding", "head"};
  c.pipeline.apart = kApart[stages == 2 ? 1 + c.layers % 2 : c.layers % 3];
  return true;
}

// Stages that begin inside of a round.
bool has_rounds(Case& c) {
  const int stages = c.pipeline.ranks * c.pipeline.stages;
  c.sizes.round = c.layers % 2 == 0 ? 2 : c.layers;
  return stages > 1 && c.layers / c.sizes.round < stages;
}

// Experts dealt out over the axis of tensor parallelism, alone or beside the batch's, or over a part of it
// while the other part cuts their width.
bool deals_experts_over_tp(Case& c) {
  if (c.model != "moe" || c.tensor.ranks == 1) return false;
  int ranks = c.experts == "cp"      ? c.context.ranks
              : c.experts == "dp_in" ? c.data.inner
              : c.experts == "dp"    ? c.data.ranks()
                                     : 1;
  const bool in_parts = c.tensor.ranks == 4 && c.layers % 2 == 0;
  c.tensor.inner = in_parts ? 2 : 1;
  c.tensor.experts = in_parts ? "tp_in" : "none";
  c.experts += std::string(c.experts.empty() ? "" : " ") + (in_parts ? "tp_out" : "tp");
  ranks *= c.tensor.ranks / c.tensor.inner;
  return c.sizes.experts % ranks == 0;
}

std::vector<Further> all() {
  std::vector<Further> out;
  for (const Thing& thing : things()) {
    size_t found = 0;
    for (Case c : shuffled()) {
      if (found == kOfEach || !thing.apply(c)) continue;
      out.push_back({thing.name, c});
      ++found;
    }
  }
  return out;
}

}  // namespace

const std::vector<Thing>& things() {
  static const std::vector<Thing> made{{"heads", shares_heads},
                                       {"apart", has_stages_apart},
                                       {"rounds", has_rounds},
                                       {"experts", deals_experts_over_tp}};
  return made;
}

const std::vector<Further>& further() {
  static const std::vector<Further> made = all();
  return made;
}

}  // namespace tenon::test
