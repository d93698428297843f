// The text of the grid's cases, in a file of this process.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <string>

#include "cases.h"

namespace tenon::test {

inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name(); }

inline std::string text_file(const Case& c) {
  const std::string path = testing::TempDir() + "tenon_grid_" + std::to_string(getpid()) + "_" +
                           std::to_string(c.sizes.batch) + "_" + std::to_string(c.sizes.context) +
                           (c.padded ? "_padded" : "") + ".txt";
  static std::set<std::string> written;
  if (written.insert(path).second) std::ofstream(path, std::ios::binary) << text_of(c);
  return path;
}

}  // namespace tenon::test
