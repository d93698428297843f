// Pipeline schedules as data: what each pipeline rank does, row by row. Rows come from a schedule plugin or
// are written by hand in a recipe; either way check_rows() decides whether they are a schedule. All of it is
// pure.
//
// Ranks, stages and microbatches count from 0; rows, in messages, from 1.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tenon/schedule.h"

namespace tenon {

enum class RowKind : uint8_t {  // the values of the ABI
  forward = TENON_ROW_FORWARD,
  input_grad = TENON_ROW_INPUT_GRAD,
  weight_grad = TENON_ROW_WEIGHT_GRAD,
  backward = TENON_ROW_BACKWARD,  // input and weight gradient in one go
};

// The work of one microbatch at one stage.
struct Row {
  RowKind kind = RowKind::forward;
  int stage = 0;
  int microbatch = 0;
  int overlap = 0;  // neighbours on a rank with equal ids > 0 run interleaved
  bool operator==(const Row&) const = default;
};

struct Rows {
  int ranks = 0;
  int stages = 0;
  int microbatches = 0;
  std::vector<std::vector<Row>> of_rank;  // in the order in which the rank starts them
  std::vector<int> owner;                 // rank of each stage
  bool operator==(const Rows&) const = default;
};

// More than any pipeline needs, few enough to number.
constexpr int64_t kMaxRowWork = int64_t{1} << 24;  // stages * microbatches

// The rows of a schedule plugin, checked by check_rows(). `who` is the plugin's id and the place of errors.
// S001: the plugin refused, or the config is none; S003 and on: the plugin's rows are not a schedule.
Result<Rows> rows_of(const tenon_schedule& schedule, const tenon_schedule_config& config,
                     const std::string& who);

// Rows written by hand: a JSON array with a string for each rank, such as
//
//     ["F0.0 F0.1 B0.0 B0.1", "F1.0 B1.0 F1.1 B1.1"]
//
// A word is a kind (F forward, I input gradient, W weight gradient, B both), a stage, a dot and a
// microbatch. Rows joined by '&' run interleaved: "F0.3&B3.1". A stage is on the rank that has its rows;
// there are as many stages as are named, and as many microbatches as the caller says. `place` is the JSON
// pointer of the document. Checked by check_rows(). S002: not of this form.
Result<Rows> parse_rows(const Json& document, int microbatches, const std::string& place);

Error refuse_rows(const char* code, std::string cause, std::string place, std::string fix);

// "F0.3"
std::string text_of(const Row& row);
// The form that parse_rows() reads, rank by rank.
std::vector<std::string> text_of(const Rows& rows);

// Whether the rows are a schedule: each microbatch has at each stage one F and either one B or one I and one
// W, all on the stage's rank; and run in this order no rank waits for ever. Errors name rank and row: S003
// out of range, S004 missing, S005 twice, S006 on a rank that does not own the stage, S007 a rank would wait
// for ever (the message tells for what), S008 interleaved rows that need each other or stand apart.
Status check_rows(const Rows& rows);

}  // namespace tenon
