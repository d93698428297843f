#include "cli/files.h"

#include <fstream>

namespace tenon::cli {

Status write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (out) return {};
  return Error{"R024", "cannot write the file", path, "choose a folder that exists and can be written",
               TENON_E_IO};
}

}  // namespace tenon::cli
