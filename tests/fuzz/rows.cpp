// Rows of a schedule written by hand: {"microbatches": n, "rows": [...]}.
#include "plan/rows/rows.h"

#include <nlohmann/json.hpp>

#include "fuzz.h"

namespace tenon::fuzz {
namespace {

std::vector<Error> feed_rows(std::string_view input) {
  const auto document = parse_json(std::string(input), "input");
  if (!document.ok()) return {document.error()};
  if (!document->is_object()) return {};
  const Json microbatches = document->value("microbatches", Json(1));
  if (!microbatches.is_number_integer()) return {};
  const int64_t count = microbatches.get<int64_t>();
  if (count < 0 || count > kMaxRowWork) return {};  // read_recipe() lets nothing else through
  const auto rows = parse_rows(document->value("rows", Json()), static_cast<int>(count), "/rows");
  if (!rows.ok()) return {rows.error()};
  const auto again = parse_rows(Json(text_of(*rows)), rows->microbatches, "/rows");
  if (!again.ok()) broken("rows that are read are not read again: " + again.error().text());
  if (text_of(*again) != text_of(*rows) || again->owner != rows->owner)
    broken("rows change when they are read again");
  return {};
}

}  // namespace

const Target& rows() {
  static const Target target{"rows",
                             Form::json,
                             feed_rows,
                             {"R010", "S002", "S003", "S004", "S005", "S006", "S007", "S008"},
                             {"json.cpp", "rows/rows.cpp", "rows/checks.cpp"},
                             {{"A005", "of plugins: see the target schedule"},
                              {"S001", "of plugins: see the target schedule"},
                              {"E010", "of plugins, when there is no memory"}}};
  return target;
}

}  // namespace tenon::fuzz
