// The generated parts of docs/explanation/pipeline-schedules.md: tables of bubbles and memory, and pictures.
#pragma once

#include <map>
#include <string>

namespace tenon::test {

// Markdown.
std::string tables();
// SVG by file name.
std::map<std::string, std::string> pictures();
// The page with `generated` between its two marks; an exception where it has none.
std::string with_generated(const std::string& page, const std::string& generated);

// Below TENON_DOCS_DIR.
std::string page_file();
std::string picture_folder();

}  // namespace tenon::test
