// schedule_page: writes the generated parts of docs/explanation/pipeline-schedules.md anew.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "page.h"

namespace {

std::string read(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const std::string& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text;
  if (!out.flush()) throw std::runtime_error("cannot write " + file);
}

}  // namespace

int main() try {
  using namespace tenon::test;
  write(page_file(), with_generated(read(page_file()), tables()));
  std::filesystem::create_directories(picture_folder());
  for (const auto& [name, svg] : pictures()) write(picture_folder() + name, svg);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "schedule_page: %s\n", error.what());
  return 1;
}
