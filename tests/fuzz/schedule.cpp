// Rows that a schedule plugin hands out. Input: ranks, stages, microbatches, what rows() returns, as many
// owners of stages as the next byte says, then five bytes for each row: rank, kind, stage, microbatch,
// overlap.
#include <cstring>

#include "fuzz.h"
#include "plan/rows/rows.h"

namespace tenon::fuzz {
namespace {

// What the plugin below answers from. A schedule's table has no room for a pointer.
struct Script {
  std::vector<int32_t> owners;
  std::vector<std::pair<int32_t, tenon_row>> rows;
  tenon_code code = TENON_OK;
};
thread_local Script script;

int32_t owner_of(const tenon_schedule_config*, int32_t stage) {
  return static_cast<size_t>(stage) < script.owners.size() ? script.owners[static_cast<size_t>(stage)] : 0;
}

tenon_code give_rows(const tenon_schedule_config*, void (*emit)(void*, int32_t, const tenon_row*), void* arg,
                     tenon_error* error) {
  for (const auto& [rank, row] : script.rows) emit(arg, rank, &row);
  if (script.code < 0) {
    error->code = script.code;
    std::memset(error->message, 'x', sizeof error->message);  // no end
  }
  return script.code;
}

std::vector<Error> feed_schedule(std::string_view input) {
  Bytes bytes(input);
  tenon_schedule_config config{};
  config.struct_size = sizeof config;
  config.ranks = bytes.small();
  config.stages = bytes.small();
  config.microbatches = bytes.small();
  script = {};
  script.code = bytes.small();
  for (int left = bytes.byte(); left > 0; --left) script.owners.push_back(bytes.small());
  while (!bytes.empty()) {
    const int32_t rank = bytes.small();
    const auto kind = static_cast<uint32_t>(bytes.small());
    const int32_t stage = bytes.small(), microbatch = bytes.small(), overlap = bytes.small();
    script.rows.push_back({rank, {kind, stage, microbatch, overlap}});
  }
  const tenon_schedule table{sizeof table, 0, owner_of, give_rows};
  const auto out = rows_of(table, config, "schedule/fuzz");
  if (!out.ok()) return {out.error()};
  if (const Status checked = check_rows(*out); !checked.ok())
    broken("refused rows: " + checked.error().text());
  return {};
}

}  // namespace

const Target& schedule() {
  static const Target target{
      "schedule",
      Form::bytes,
      feed_schedule,
      // From A010 on: what rows() of a plugin may return.
      {"S001", "S003", "S004", "S005", "S006", "S007", "S008", "A001", "A011", "A012", "E010", "E011", "E012",
       "W010", "W011", "W012"},
      {"rows/rows.cpp", "rows/checks.cpp", "result.cpp"},
      {{"A005", "NULL for a row, or more rows than any schedule has: see the lies of tests/abi"},
       {"S002", "of rows by hand: see the target rows"},
       {"A010", "a schedule's A010 is told as S001"}}};
  return target;
}

}  // namespace tenon::fuzz
