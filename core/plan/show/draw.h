// Simulated time as pictures: the pipeline diagram as SVG, and the same for trace viewers. Pure.
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

// A row for each lane, ranks ascending, the lanes of a rank in order of appearance; a colour for each
// category, with a legend; labels, or else microbatches, where there is room, and on
// hovering everywhere. Spans of a lane that
// overlap share its height. `title` is written above, `unit` beside the axis of time.
std::string svg_of(const std::vector<Span>& spans, const std::string& title, const std::string& unit);

// The Trace Event Format that chrome://tracing and ui.perfetto.dev read: a process for each rank, a thread
// for each lane. `microseconds` is what one unit of time stands for.
std::string chrome_trace_of(const std::vector<Span>& spans, double microseconds);

}  // namespace tenon
