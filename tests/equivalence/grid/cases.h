// The cases of the equality grid: which models, meshes, strategies and schedules go together.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "covering.h"

namespace tenon::test {

constexpr int kBatch = 16, kContext = 16;

// A pipeline of `ranks`, each with `stages` of its own.
struct Pipeline {
  int ranks = 1;
  int stages = 1;
  std::string schedule = "";
};

struct Context {
  int ranks = 1;
  std::string exchange = "";
};

struct Tensor {
  int ranks = 1;
  bool sequence = false, vocabulary = true;
};

// Of dp, or of one of its two parts; gathers within another part of it.
struct Zero {
  int stage = 0;
  std::string axis = "dp", within = "";
};

// Outer times inner: above 1 both, the mesh has dp_out and dp_in instead of dp.
struct Data {
  int outer = 1, inner = 1;
  int ranks() const { return outer * inner; }
};

struct Case {
  std::string model;  // "gpt2" (tied), "gpt2_untied", "llama" (two query heads for each key head), "moe"
  int layers = 3;
  int width = 8;
  Pipeline pipeline;
  Data data;
  Zero zero;
  Context context;
  Tensor tensor;
  std::string experts;  // the axis; empty: not cut
  int microbatches = 1;
  std::string optimizer;
  bool padded = false;  // the last sample of the text is short: ranks count different numbers of tokens
  std::vector<std::string> order;  // of the mesh's axes
  bool reversed = false;           // strategies in the reverse of the usual order
  bool idle_axes = false;          // the mesh has axes of one rank too, and the recipe their strategies

  int world() const { return pipeline.ranks * data.ranks() * context.ranks * tensor.ranks; }
  // Says everything above: letters, digits and '_'.
  std::string name() const;
};

// All cases, the same ones in the same order each time.
struct Grid {
  CoveringArray array;
  std::vector<Case> cases;
};
const Grid& grid();
// A grid of its own for a smaller world.
Grid make_grid(int most_ranks);

// Cases in a fixed random order.
std::vector<Case> shuffled();

// The factors that `grid()` covers, for a check of its own.
std::vector<int> factor_sizes();
bool allowed(const Choice& choice);

// What one device computes for a case, and what the mesh of the case computes. `text`: a file of text_of().
Json alone(const Case& c, const std::string& text);
Json together(const Case& c, const std::string& text);
// The same in f32 with kernels/cpu, as users run it; `exact`: in exact mode, which has its own microbatches.
Json in_f32(Json recipe, bool exact);
// Cases with equal keys have equal recipes `alone`.
std::string key_alone(const Case& c);

// Twenty samples, the last one short or not.
std::string text_of(bool padded);

}  // namespace tenon::test
