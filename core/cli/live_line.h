// One line of a terminal that is written again and again, and so must not reach the next one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::cli {

struct Field {
  std::string text;  // empty: not there
  int rank = 0;      // what has the highest goes first where there is no room
};

// The fields in their order, two spaces between them.
std::string joined(const std::vector<Field>& fields);

// The same in at most `columns` columns: without the fields of the highest ranks, and cut where what has rank
// 0 is too much. Deterministic, so that a field does not come and go while its text keeps its length.
std::string fitted(std::vector<Field> fields, size_t columns);

// Columns that a terminal needs for UTF-8: 2 for a wide character, 0 for a combining one; a byte that is no
// UTF-8 takes 1.
size_t columns_of(std::string_view text);

// The longest beginning of whole characters that takes no more than `columns`.
std::string cut_to(std::string_view text, size_t columns);

// Columns of the terminal that `fd` is, at this moment; 80 where it does not say.
size_t terminal_columns(int fd);

}  // namespace tenon::cli
