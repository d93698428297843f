// What is said of a placed graph: its values, ops and rules, and the reasons that it holds, in words.
#pragma once

#include <string>

#include "graph/graph.h"

namespace tenon {

// Of a value, wherever it has been moved since: "0/h.attn.q".
const std::string& shown_name(const Graph& graph, ValueId id);
std::string placement_text(const Graph& graph, const Mesh& mesh, ValueId id);
// In the notation of docs/reference/ops.md.
std::string rule_text(const OpDef& def);
// "add: 0/y <- 0/x, 0/z as R"
std::string op_text(const Graph& graph, const Op& op);
// Why a graph has a collective, as a sentence.
std::string sentence_of(const Graph& graph, const Mesh& mesh, const Reason& reason);
// What the strategy behind a cut said: "cuts 'tokens' by batch over dp".
std::string said_by(const Graph& graph, const Mesh& mesh, const Origin& origin);

}  // namespace tenon
