// The joint graph of a program: forward, backward and update of one microbatch, with every value placed.
#pragma once

#include <functional>
#include <memory>

#include "graph/autodiff.h"
#include "graph/model.h"

namespace tenon {

enum class ProgramKind : uint8_t { train, eval, logits };
const char* name_of(ProgramKind kind);

// Lets strategies annotate the forward graph (phase A).
using Annotate = std::function<Status(Graph&, const Mesh&)>;

struct JointGraph {
  Graph graph;  // placed
  std::map<std::string, ValueId> inputs;
  std::map<std::string, ValueId> outputs;  // "loss", "count", "norm", "scale"; "logits"
  std::vector<LeafGrad> leaves;            // param, its gradient within a microbatch; completion order
  std::vector<ValueId> params;             // in the recipe's order
  // The same before anything was placed: what a program is proved to compute. Its stages and kinds are those
  // that the strategies gave to ops. Unset in that one itself.
  std::shared_ptr<const JointGraph> unplaced = {};
  // Per value: which of the unplaced graph it is, in whatever form.
  std::vector<ValueId> unplaced_ids = {};
};

// The graphs on the way to a program of training, for those who ask why it is as it is. Of a recipe that is
// refused there are those before it is.
struct Graphs {
  std::optional<Graph> model;   // forward, as the recipe builds it
  std::optional<Graph> placed;  // that with the strategies' pins, and placed
  std::optional<JointGraph> joint;
};

// `batch`: samples of one microbatch over the whole mesh.
Result<JointGraph> build_joint(const Recipe& recipe, const Mesh& mesh, ProgramKind kind, int64_t batch,
                               const Annotate& annotate);
Graphs build_graphs(const Recipe& recipe, const Mesh& mesh, int64_t batch, const Annotate& annotate);

}  // namespace tenon
