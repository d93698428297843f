#include "base/assert.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

namespace tenon {

void assertion_failed(const char* condition, const char* file, int line) {
  fmt::print(stderr, "{}:{}: this must hold: {}\n", file, line, condition);
  std::abort();
}

}  // namespace tenon
