// The cases of the equality grid: which models, meshes, strategies and schedules go together.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "covering.h"

namespace tenon::test {

// gpt2 is tied and has dropout; llama has two query heads for each key head, and is tied.
inline const std::vector<std::string> kModels{"gpt2", "gpt2_untied", "llama", "moe"};
inline const std::vector<std::string> kSchedules{"gpipe", "1f1b", "interleaved",
                                                 "zb-h1", "zb-v", "dualpipe-v"};

// What the grid does not vary.
struct Sizes {
  int batch = 16, context = 16, vocab = 256;
  int width = 8, ffn = 8, groups = 4, head = 2;
  int reps = 0;                 // query heads of a group; 0: as many as the model has
  int round = 1;                // layers of a round of the model's repeat
  int experts = 8, routed = 2;  // moe: tokens of a routing group

  // Those that are not the grid's: "_b12_t24".
  std::string name() const;
};

// A pipeline of `ranks`, each with `stages` of its own.
struct Pipeline {
  int ranks = 1;
  int stages = 1;
  std::string schedule = "";
  std::string apart = "none";  // what has a stage of its own
};

struct Context {
  int ranks = 1;
  std::string exchange = "";
};

struct Tensor {
  int ranks = 1;
  bool sequence = false, vocabulary = true;
  int inner = 1;             // above 1 the mesh has tp_out and tp_in instead of tp
  std::string experts = "";  // the axis that cuts their width; "none"; empty: the same
};

// Of dp, or of one of its two parts; gathers within another part of it.
struct Zero {
  int stage = 0;
  std::string axis = "dp", within = "";
};

// Outer times inner: above 1 both, the mesh has dp_out and dp_in instead of dp.
struct Data {
  int outer = 1, inner = 1;
  bool kept = false;   // in the mesh even where it is one rank
  bool split = false;  // both parts are, even where one is one rank
  int ranks() const { return outer * inner; }
  bool in_parts() const { return split || outer > 1; }
};

struct Case {
  std::string model;
  int layers = 3;
  Sizes sizes;
  Pipeline pipeline;
  Data data;
  Zero zero;
  Context context;
  Tensor tensor;
  std::string experts;  // the axes, with spaces between; empty: not cut
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

// Four samples more than a batch, the last one short or not.
std::string text_of(const Case& c);

}  // namespace tenon::test
