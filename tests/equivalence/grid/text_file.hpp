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

inline std::string text_file(bool padded) {
  const std::string path =
      testing::TempDir() + "tenon_grid_" + std::to_string(getpid()) + (padded ? "_padded" : "") + ".txt";
  static std::set<bool> written;
  if (written.insert(padded).second) std::ofstream(path, std::ios::binary) << text_of(padded);
  return path;
}

}  // namespace tenon::test
