// What a program that does not train computes: a model's forward graph without the ops of training alone.
#pragma once

#include "graph/model.h"

namespace tenon {

// Leaves out the ops whose row says so (`training_only`): what read their output reads the input that stands
// for it. Strategies annotate the graph of training, so that parameters and stages are where they are there;
// what they pinned of such an output goes to that input, unless it is an input of the model or a parameter,
// which rests where it rests in training, or has a pin of its own over that axis.
ForwardGraph outside_training(ForwardGraph forward);

}  // namespace tenon
