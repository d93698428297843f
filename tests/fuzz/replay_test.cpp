// The corpus of each fuzz target, without a fuzzer: every input keeps the promise, and together they provoke
// every code that the target lists, which are those that its sources name.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "fuzz.h"

namespace tenon::fuzz {
namespace {

namespace fs = std::filesystem;
const fs::path kRoot = TENON_SOURCE_DIR;

std::string text_of(const fs::path& file) {
  std::ostringstream out;
  out << std::ifstream(file, std::ios::binary).rdbuf();
  return out.str();
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::set<std::string> matches(const std::string& text, const std::string& pattern) {
  std::set<std::string> out;
  const std::regex regex(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) out.insert((*at)[1]);
  return out;
}

// The name of a code: constexpr const char* kBadShard = "C004";
std::map<std::string, std::string> named_codes(const std::vector<fs::path>& files) {
  std::map<std::string, std::string> out;
  const std::regex regex("constexpr const char\\* (k\\w+) = \"([A-Z]\\d{3})\"");
  for (const fs::path& file : files) {
    if (file.extension() != ".h") continue;
    const std::string text = text_of(file);
    for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at)
      out[(*at)[1]] = (*at)[2];
  }
  return out;
}

// A file is named by its end, a folder from the root on.
bool is_of(const fs::path& file, std::string_view source) {
  const std::string name = file.lexically_relative(kRoot).generic_string();
  if (source.back() != '/') return ("/" + name).ends_with("/" + std::string(source));
  return name.starts_with(source) && !name.ends_with("_test.cpp");
}

// The codes that the target's sources give.
std::set<std::string> codes_in_sources(const Target& target) {
  std::vector<fs::path> files;
  for (const char* folder : {"core", "plugins", "scripts"}) {
    for (const fs::path& file : files_in(kRoot / folder)) files.push_back(file);
  }
  const auto names = named_codes(files);
  std::set<std::string> out;
  for (const std::string_view source : target.sources) {
    size_t found = 0;
    for (const fs::path& file : files) {
      if (!is_of(file, source)) continue;
      ++found;
      const std::string text = text_of(file);
      out.merge(matches(text, "\"([A-Z]\\d{3})\""));
      for (const std::string& word : matches(text, "\\b(k[A-Z]\\w+)")) {
        if (names.contains(word)) out.insert(names.at(word));
      }
    }
    EXPECT_TRUE(source.back() == '/' ? found > 0 : found == 1) << source << ": " << found;
  }
  return out;
}

// "r003-type.json" says that it provokes R003.
std::string code_in_name(const fs::path& file) {
  std::string name = file.filename();
  if (!std::regex_search(name, std::regex("^[a-z]\\d{3}-"))) return "";
  name[0] = static_cast<char>(std::toupper(name[0]));
  return name.substr(0, 4);
}

class FuzzReplay : public testing::TestWithParam<Target> {};

TEST_P(FuzzReplay, the_corpus_keeps_the_promise_and_provokes_every_code) {
  const Target& target = GetParam();
  std::set<std::string> expected(target.codes.begin(), target.codes.end()), seen;
  for (const fs::path& file : files_in(kRoot / "tests/fuzz/corpus" / target.name)) {
    std::set<std::string> codes;
    for (const Error& error : feed(target, text_of(file))) codes.insert(error.code);
    if (const std::string code = code_in_name(file); !code.empty()) {
      EXPECT_TRUE(codes.contains(code)) << file << " provokes " << testing::PrintToString(codes);
    }
    seen.merge(codes);
  }
  EXPECT_EQ(seen, expected);
}

TEST_P(FuzzReplay, the_codes_are_those_of_the_sources) {
  const Target& target = GetParam();
  std::set<std::string> listed(target.codes.begin(), target.codes.end());
  for (const auto& [code, why] : target.unreachable) {
    EXPECT_FALSE(listed.contains(std::string(code))) << code << " is both reached and " << why;
    listed.insert(std::string(code));
  }
  for (const std::string& code : codes_in_sources(target)) EXPECT_TRUE(listed.contains(code)) << code;
}

INSTANTIATE_TEST_SUITE_P(All, FuzzReplay,
                         testing::Values(command_line(), lua(), manifest(), recipe(), rendezvous(), rows(),
                                         schedule(), shard_header()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tenon::fuzz
