// Simulated time as pictures: the pipeline diagram as SVG, and the same for trace viewers. Pure.
#pragma once

#include <string>
#include <vector>

#include "plan/show/span.h"

namespace tenon {

// What is written around a picture.
struct Caption {
  std::string title = {};
  std::string subtitle = {};   // below it; "": none
  std::string unit = "units";  // of time, beside its axis
  double of_one = 1;           // so many of this unit is a span's 1
  std::string rank = "rank";  // what a span's rank counts, in the names of lanes; "": lanes have names enough
};

// The unit of time in which so many seconds have one to three digits, for spans in seconds.
Caption in_unit_for(double seconds);

// The colour of a category, always the same: "#rrggbb". Those that nobody knows share one.
std::string colour_of(const std::string& category);

// A row for each lane in which anything takes time, ranks ascending, the lanes of a rank in order of
// appearance, with a legend; labels, or else microbatches, where there is room, and on hovering everywhere.
// Spans of a lane that overlap share its height while they do.
//
// The coloured share of a lane's area is the share of the time in which it does anything, to about a
// hundredth: nothing is lost by being thin. Spans alike that are close are one box, as high as its share of
// their time; what stays thinner than a pixel is gathered into cells, where each category has its share of
// the height. A pixel is made coarser until the picture is small: 1,500 boxes, and less than 300 KB.
std::string svg_of(const std::vector<Span>& spans, const Caption& caption);

// The Trace Event Format that chrome://tracing and ui.perfetto.dev read: a process for each rank, a thread
// for each lane. `microseconds` is what one unit of time stands for.
std::string chrome_trace_of(const std::vector<Span>& spans, double microseconds);

}  // namespace tenon
