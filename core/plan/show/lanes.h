// Spans by the lanes that they are on, and what of a lane is drawn where. Pure.
#pragma once

#include <string>
#include <vector>

#include "plan/show/span.h"

namespace tenon {

struct Lane {
  int rank = 0;
  std::string name;
  std::vector<const Span*> spans;  // by start
};

// Ranks ascending, the lanes of a rank in order of appearance. Borrows the spans.
std::vector<Lane> lanes_of(const std::vector<Span>& spans);

// A rectangle of a lane, in time and in shares of the lane's height, counted from its upper edge.
struct Box {
  double start = 0, end = 0;
  double top = 0, height = 1;
  std::string category;
  int shade = 0;
  std::string label;    // "": none
  int microbatch = -1;  // -1: none
  std::string what;     // told on hovering
};

// How much detail is kept; seconds, or whatever spans count.
struct Detail {
  double join = 0;  // spans alike that are closer are one box
  double thin = 0;  // what is shorter is gathered into cells with its neighbours, which are closer than this,
  double cell = 0;  // of about this length
};

// By start; boxes do not overlap, and what they cover together is the time in which the lane does anything.
// Without detail to lose every span has its own.
std::vector<Box> boxes_of(const Lane& lane, const Detail& detail);

}  // namespace tenon
