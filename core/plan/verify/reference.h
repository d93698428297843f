// What the programs of a run are to compute, as fingerprints: taken from the graph before anything was
// placed, so that no strategy, no emission and no pass over programs has a part in it.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "graph/joint.h"
#include "plan/program/optimizer.h"
#include "plan/verify/print.h"

namespace tenon {

// How a value that classes of ranks hand to each other stands on both of them.
struct Handed {
  ValueId value = kNone;  // of the reference's graph
  Placement placement;
  Placement gradient = {};  // of a parameter: before it is summed over the ranks
};
// By id of the placed graph, from which programs are emitted: what other stages read, parameters, outputs.
using HandedValues = std::map<ValueId, Handed>;
HandedValues handed_values(const JointGraph& placed);
// In a stable form, for the digest: each rank holds what it hands over and gets against these placements, so
// all must have the same.
std::string serialize(const HandedValues& handed, const Mesh& mesh);

struct Reference {
  std::shared_ptr<const JointGraph> joint;  // unplaced
  Mesh mesh;
  OptimizerPlan optimizer;
  int64_t microbatches = 1;
  bool training = false;
  bool exact = false;      // additions in the fixed tree: their order is part of a fingerprint
  std::vector<int> owner;  // class of each stage
  // Bytes of workspace of each kernel that the plugin was asked for, by kernel_key(); unset: it was not
  // asked.
  std::optional<std::map<std::string, uint64_t>> workspaces = {};
  // Claimed by emission: who hands a value over is held to it as much as who gets it, and all ranks have the
  // same.
  HandedValues handed = {};
};

Print input_print(const std::string& name, int64_t microbatch);
Print param_print(const std::string& name);
Print state_print(const std::string& name);
// What an update makes of a parameter, or of a slot of its state.
Print update_print(const std::string& tensor, int group, const Print& grad, const Print& param,
                   const Print& scale);
// A sum over the ranks that share the batch; in exact mode, where it is a step of the fixed tree.
Print shards_print(const Print& sum);

struct Expected {
  struct Param {
    const Value* value = nullptr;  // of the reference's graph
    int group = 0;
    Print grad, after;
    const std::vector<StateSlot>* slots = nullptr;  // none: the program does not train
    std::map<int, Print> addends = {};              // of the gradient, by the class that makes them
  };
  // Of what stages read from each other.
  struct Crossing {
    std::vector<Print> prints;   // by microbatch
    bool of_microbatch = false;  // made from its inputs
  };
  std::map<std::string, Param> params;
  std::map<std::string, Print> outputs;
  std::map<ValueId, Crossing> crossing;
  Print squares;  // of all gradients
  Dtype real = Dtype::f32;
};

// `shared`: several ranks share the batch.
Expected expect(const Reference& reference, bool shared);
// For messages: which op's addend of which microbatch a gradient lacks, or has twice; "" where it is neither.
std::string difference(const Reference& reference, const std::string& param, const Print& found,
                       const Print& wanted);
// Values of one microbatch by name: for messages.
std::map<std::string, Print> values_of(const Reference& reference, int64_t microbatch);

}  // namespace tenon
