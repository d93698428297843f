// What pictures and traces are made of. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tenon {

// Something that a lane of a rank does.
struct Span {
  int rank = 0;
  std::string lane;      // "compute", "dp", ...
  std::string label;     // what is written into it: "F0.3"
  std::string category;  // decides the colour: "forward", "backward", "all_reduce", ...
  int microbatch = -1;   // -1: none
  double start = 0;
  double end = 0;
  int shade = 0;  // darker where higher: tells apart what is of one category, such as a rank's stages
  // What else a trace viewer tells about it: {"bytes", 4096}, {"op", "linear"}.
  std::vector<std::pair<std::string, std::variant<int64_t, std::string>>> details = {};
};

}  // namespace tenon
