// In which form a value goes from the stage of a pipeline that makes it to those that read it: one for all.
#pragma once

#include <map>

#include "graph/route.h"
#include "graph/types.h"

namespace tenon {

// A value that other stages read: where its op, or its pins, put it, and the placements that are read there,
// each once, at least one.
struct Crossing {
  Placement made;
  std::vector<Placement> read;
};

// By value; what is not listed crosses as it is read.
using CrossingForms = std::map<ValueId, Placement>;

// The smallest form from which all that is read follows. What is whole over an axis where it is made is not
// cut to be sent, if anybody reads it whole. Of equally small ones that with the fewest collectives.
Placement crossing_form(const Routes& routes, const Mesh& mesh, const Crossing& crossing);

}  // namespace tenon
