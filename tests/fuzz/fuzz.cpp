#include "fuzz.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"

namespace tenon::fuzz {

void broken(std::string_view what) {
  std::fprintf(stderr, "broken promise: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

std::vector<Error> feed(const Target& target, std::string_view input) {
  std::vector<Error> errors = target.run(input);
  for (const Error& error : errors) {
    if (std::ranges::count(target.codes, error.code) == 0)
      broken(std::string(target.name) + " has no such code:\n" + error.text());
    if (error.cause.empty()) broken("an error without a cause: " + error.text());
    if (error.kind >= 0) broken("an error of no kind: " + error.text());
    (void)printable(Json{{"cause", error.cause}, {"place", error.place}, {"fix", error.fix}});
  }
  return errors;
}

}  // namespace tenon::fuzz
