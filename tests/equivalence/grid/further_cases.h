// Cases of the grid, each with one more thing that its factors do not have.
#pragma once

#include "cases.h"

namespace tenon::test {

struct Further {
  std::string thing;
  Case what;
};
// As many for each thing, in a fixed random order.
const std::vector<Further>& further();

// The thing done to a case; false: it does not go with it.
struct Thing {
  const char* name;
  bool (*apply)(Case& c);
};
const std::vector<Thing>& things();

}  // namespace tenon::test
