// Parameters and state as whole tensors, put together from what the ranks hold of them and taken apart again:
// what initial values and checkpoints do.
#pragma once

#include <map>

#include "rank_memory.h"

namespace tenon::mutants {

// A whole tensor, row-major. What no rank wrote is NaN.
using Whole = std::vector<double>;
// By name, with dtype and shape: "wte.weight f64[16 8]".
using Wholes = std::map<std::string, Whole>;

std::string described(const TensorInfo& tensor);

// Fills what a rank holds of its parameters as the recipe's seed says.
void initialise(const Program& program, const Mesh& mesh, int64_t rank, uint64_t seed, RankMemory& memory);
// What a rank writes into a checkpoint: of parameters and states, its parts of those that are its to write.
// Fault where two ranks write the same element.
void save(const Program& program, const Mesh& mesh, int64_t rank, RankMemory& memory, Wholes& out);
// What it reads from one. Fault where `from` lacks a tensor of that shape.
void load(const Program& program, const Mesh& mesh, int64_t rank, RankMemory& memory, const Wholes& from);
// What it holds, copies too: elements in order of memory.
std::map<std::string, std::vector<double>> held(const Program& program, int64_t rank, RankMemory& memory);
// Its parts of the parameters' gradients as the last step left them.
void collect_gradients(const Program& program, const Mesh& mesh, int64_t rank, RankMemory& memory,
                       Wholes& out);

}  // namespace tenon::mutants
