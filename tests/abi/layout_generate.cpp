// Reads the headers of abi/tenon and writes a C program that prints their layout: size of each struct;
// offset, size and declaration of each field; value of each enumerator and of each constant macro; the head
// of each inline function. Knows the form in which our headers are written and stops at anything else, so
// that nothing is missed. usage: layout_generate <header>... > probe.c
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace {

[[noreturn]] void stop(const std::string& header, const std::string& what) {
  std::cerr << header << ": " << what << "\n";
  std::exit(1);
}

std::string read_without_comments(const std::string& path) {
  std::ifstream file(path);
  if (!file) stop(path, "cannot be read");
  std::stringstream text;
  text << file.rdbuf();
  std::string code = text.str();
  if (code.find("/*") != std::string::npos) stop(path, "has a /* comment");
  return std::regex_replace(code, std::regex("//[^\n]*"), "");
}

std::string squeeze(const std::string& text) {
  const std::string one = std::regex_replace(text, std::regex("\\s+"), " ");
  return std::regex_replace(one, std::regex("^ | $"), "");
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    if (!squeeze(part).empty()) parts.push_back(squeeze(part));
  }
  return parts;
}

// "double min, max" -> min, max;  "char vendor[32]" -> vendor;  "int (*step)(int a, int b)" -> step
std::vector<std::string> field_names(const std::string& header, const std::string& declaration) {
  std::smatch match;
  if (std::regex_search(declaration, match, std::regex("\\(\\*(\\w+)\\)"))) return {match[1]};
  std::vector<std::string> names;
  for (const std::string& part : split(declaration, ',')) {
    if (!std::regex_search(part, match, std::regex("(\\w+)(\\[\\w+\\])?$"))) {
      stop(header, "cannot read '" + declaration + "'");
    }
    names.push_back(match[1]);
  }
  return names;
}

void print_struct(const std::string& header, const std::string& name, const std::string& body) {
  std::cout << "  printf(\"struct " << name << " %zu\\n\", sizeof(" << name << "));\n";
  for (const std::string& declaration : split(body, ';')) {
    for (const std::string& field : field_names(header, declaration)) {
      std::cout << "  printf(\"  %zu %zu " << declaration;
      if (declaration.find(',') != std::string::npos && declaration.find('(') == std::string::npos) {
        std::cout << " : " << field;
      }
      std::cout << "\\n\", offsetof(" << name << ", " << field << "), sizeof(((" << name << " *)0)->" << field
                << "));\n";
    }
  }
}

void print_enum(const std::string& header, const std::string& body) {
  for (const std::string& item : split(body, ',')) {
    std::smatch match;
    if (!std::regex_search(item, match, std::regex("^(\\w+)( = .*)?$")))
      stop(header, "cannot read '" + item + "'");
    std::cout << "  printf(\"" << match[1] << " = %lld\\n\", (long long)" << match[1] << ");\n";
  }
}

size_t count(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  return static_cast<size_t>(std::distance(std::sregex_iterator(text.begin(), text.end(), regex), {}));
}

// Each alternative begins where a line does; a struct and a function end at the first brace, for none is
// nested.
void print_header(const std::string& path) {
  const std::string code = read_without_comments(path);
  const std::regex item(
      "(?:^|\n)(?:typedef )?struct (\\w+) \\{([^}]*)\\}( \\w+)?;"
      "|(?:^|\n)enum \\{([^}]*)\\};"
      "|(?:^|\n)#define (TENON_\\w+) (\"[^\"]*\"|[0-9][0-9a-fx]*u?)(?=\n)"
      "|(?:^|\n)static inline (\\w[^{]*) \\{[^}]*\\}");
  size_t braces = 0;
  for (std::sregex_iterator at(code.begin(), code.end(), item), end; at != end; ++at) {
    const std::smatch& match = *at;
    if (match[1].matched) print_struct(path, match[1], match[2]);
    if (match[4].matched) print_enum(path, match[4]);
    if (match[7].matched) std::cout << "  printf(\"" << squeeze(match[7]) << "\\n\");\n";
    if (match[5].matched && match[6].str()[0] == '"') {
      std::cout << "  printf(\"" << match[5] << " = %s\\n\", " << match[5] << ");\n";
    } else if (match[5].matched) {
      std::cout << "  printf(\"" << match[5] << " = %lld\\n\", (long long)" << match[5] << ");\n";
    }
    if (!match[5].matched) ++braces;
  }
  const size_t present = count(code, "\\{") - count(code, "extern \"C\" \\{");
  if (braces != present) {
    stop(path,
         "has " + std::to_string(present) + " braces, of which " + std::to_string(braces) + " were read");
  }
}

}  // namespace

int main(int argc, char** argv) try {
  std::cout << "#include <stddef.h>\n#include <stdio.h>\n";
  for (int i = 1; i < argc; ++i) std::cout << "#include \"" << argv[i] << "\"\n";
  std::cout << "int main(void) {\n";
  for (int i = 1; i < argc; ++i) print_header(argv[i]);
  std::cout << "  return 0;\n}\n";
  return argc > 1 ? 0 : 1;
} catch (const std::exception& e) {
  stop("layout_generate", e.what());
}
