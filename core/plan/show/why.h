// Why an instruction is in a program: from what its graph and its emission have recorded. Of the list itself
// is only what it shows: the buckets that a norm is of, the value that an op exchanges within itself. Pure;
// text and JSON of one record.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "graph/joint.h"
#include "plan/program/program.h"
#include "plan/show/simulate.h"

namespace tenon {

// What the recipe has to say: where a JSON pointer was written ("my.lua:12:5"; "": not known), and the
// pointer of a strategy by its id.
struct RecipeSource {
  std::function<std::string(const std::string&)> place;
  std::map<std::string, std::string> strategies;
};

// A strategy that has a part in it, what it said, and where the recipe names it.
struct Involved {
  std::string id, said, place;
};

// Strings are empty, and numbers 0, where a field has no meaning for an instruction.
struct WhyRecord {
  InstrId id = 0;
  int layer = -1;           // of the op that wants it
  int stage = 0;            // of the pipeline, that does it: of a send the one that makes the value
  std::string what;         // "all_gather over tp, on lane tp"
  std::string when;         // "forward, microbatch 0, layer 1"
  std::string value;        // what it makes, or sends: "0/h.attn.q f32[2 16 1 1 16]", local to a rank
  std::string op;           // of the graph: "linear: 0/h.attn.q <- 0/h.ln_1, h.0.attn.q.weight"
  std::string place;        // of that op, or of the parameters, in the recipe
  std::string had, wanted;  // placements of a value that is moved
  std::string because;      // a sentence
  std::string rule;         // that asks for it: "linear: x[b s k..], w[o.. k..] -> y[b s o..]; ..."
  std::vector<Involved> strategies;
  std::vector<std::string> fused;  // ops, with their places
  uint64_t bytes = 0;              // that it reads and writes, or moves, on one rank
  uint64_t sends = 0;              // transfers: what one rank of the program sends to others
  std::string formula;             // of `sends`
  double seconds = 0, flops = 0;
};

WhyRecord why(const Program& program, InstrId id, const JointGraph& joint, const RecipeSource& source,
              const Machine& machine);
std::string text(const WhyRecord& record);
Json json_of(const WhyRecord& record);

// All instructions of a program, each with its record.
Json instructions_json(const Program& program, const JointGraph& joint, const RecipeSource& source,
                       const Machine& machine);

}  // namespace tenon
