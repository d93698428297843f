// Runs a strategy's pass over the graph through the C tables of abi/tenon/draft/pass.h.
#pragma once

#include "graph/graph.h"
#include "tenon/draft/pass.h"

namespace tenon {

struct PassUse {
  std::string id;  // "parallel/data"
  const tenon_pass* table = nullptr;
  std::vector<tenon_option> options;  // borrowed
  std::string place = "/strategies";  // where the recipe names it, for errors
  const tenon_host* host = nullptr;
};

// Annotates the graph, phase A before phase B. Errors: P003 two passes disagree about a value (names both),
// P004 a strategy's conflicts or needs, and what the pass itself says.
Status run_passes(const std::vector<PassUse>& passes, Graph& graph, const Mesh& mesh);

// The mesh with the axes split that the passes want split. What else they refuse is left for run_passes to
// say.
Mesh mesh_for(const std::vector<PassUse>& passes, const Graph& graph, const Mesh& mesh);

}  // namespace tenon
