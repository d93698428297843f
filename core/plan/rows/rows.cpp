#include "plan/rows/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

namespace tenon {
namespace {

constexpr std::string_view kLetters = "FIWB";  // by RowKind

// -- from a plugin --------------------------------------------------------------------------------------

Status check_config(const tenon_schedule_config& config, const std::string& who) {
  if (config.ranks >= 1 && config.stages >= config.ranks && config.stages % config.ranks == 0 &&
      config.microbatches >= 1 && int64_t{config.stages} * config.microbatches <= kMaxRowWork) {
    return {};
  }
  return refuse_rows(
      "S001",
      fmt::format("{} stages on {} pipeline ranks with {} microbatches", config.stages, config.ranks,
                  config.microbatches),
      who,
      fmt::format("stages must be a multiple of the ranks, microbatches at least 1, and stages * "
                  "microbatches at most {}",
                  kMaxRowWork));
}

// Three for each microbatch at each stage would do: forward, and both gradients.
constexpr int64_t kMostEmitted = 4 * int64_t{kMaxRowWork};

// What a plugin emits; a row of a rank that does not exist is kept for the message.
struct Emitted {
  std::vector<std::vector<Row>> of_rank;
  std::optional<int32_t> unknown_rank;
  bool null_row = false;
  bool too_many = false;
  bool out_of_memory = false;
  int64_t count = 0;
};

// No exception may go through the plugin that calls this.
void collect(void* arg, int32_t rank, const tenon_row* row) noexcept try {
  if (arg == nullptr) return;
  auto& out = *static_cast<Emitted*>(arg);
  if (row == nullptr) {
    out.null_row = true;
  } else if (++out.count > kMostEmitted) {
    out.too_many = true;
  } else if (rank < 0 || static_cast<size_t>(rank) >= out.of_rank.size()) {
    out.unknown_rank = rank;
  } else {
    out.of_rank[static_cast<size_t>(rank)].push_back(
        {static_cast<RowKind>(std::min<uint32_t>(row->kind, UINT8_MAX)), row->stage, row->microbatch,
         row->overlap});
  }
} catch (const std::bad_alloc&) {
  static_cast<Emitted*>(arg)->out_of_memory = true;
}

Status check_emitted(const Emitted& emitted, const std::string& who) {
  std::string what;
  if (emitted.null_row) what = "it emitted NULL for a row";
  if (emitted.too_many) what = fmt::format("it emitted more than {} rows", kMostEmitted);
  if (what.empty()) return {};
  return Error{"A005", std::move(what), who, "correct the plugin's rows", TENON_E_VERSION};
}

// -- by hand --------------------------------------------------------------------------------------------

// The number at the front of `text`, which it loses.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0 || value == INT_MAX) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

std::optional<Row> parse_row(std::string_view text) {
  const size_t kind = text.empty() ? std::string_view::npos : kLetters.find(text.front());
  if (kind == std::string_view::npos) return std::nullopt;
  text.remove_prefix(1);
  const auto stage = take_number(text);
  if (!stage || !text.starts_with('.')) return std::nullopt;
  text.remove_prefix(1);
  const auto microbatch = take_number(text);
  if (!microbatch || !text.empty()) return std::nullopt;
  return Row{static_cast<RowKind>(kind), *stage, *microbatch};
}

// "F0.3&B3.1" -> two rows with this id; "F0.3" -> one with none.
std::optional<std::vector<Row>> parse_word(const std::string& word, int overlap) {
  std::vector<Row> out;
  for (size_t at = 0; at <= word.size();) {
    const size_t end = std::min(word.find('&', at), word.size());
    const auto row = parse_row(std::string_view(word).substr(at, end - at));
    if (!row) return std::nullopt;
    out.push_back(*row);
    at = end + 1;
  }
  if (out.size() > 1) {
    for (Row& row : out) row.overlap = overlap;
  }
  return out;
}

Result<std::vector<Row>> parse_rank(const std::string& text, const std::string& place) {
  std::vector<Row> out;
  std::istringstream words(text);
  int count = 0;
  for (std::string word; words >> word;) {
    ++count;
    const auto rows = parse_word(word, count);
    if (!rows) {
      return refuse_rows(
          "S002", fmt::format("word {} of the rows is '{}'", count, word), place,
          "write F, I, W or B, a stage, a dot and a microbatch: F0.3; and & between interleaved rows: "
          "F0.3&B3.1");
    }
    out.insert(out.end(), rows->begin(), rows->end());
  }
  return out;
}

// Stages are as many as are named, each on the rank with most of its rows, so that a row on a wrong rank is
// what gets refused. Owner -1: a stage without rows.
void find_owners(Rows& rows) {
  std::map<int, std::map<int, int>> count;  // stage -> rank -> rows
  for (int rank = 0; rank < rows.ranks; ++rank) {
    for (const Row& row : rows.of_rank[static_cast<size_t>(rank)]) ++count[row.stage][rank];
  }
  rows.stages = count.empty() ? 0 : count.rbegin()->first + 1;
  if (rows.stages > kMaxRowWork) return;  // refused by check_rows()
  rows.owner.assign(static_cast<size_t>(rows.stages), -1);
  for (const auto& [stage, of_rank] : count) {
    const auto most = std::max_element(of_rank.begin(), of_rank.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    rows.owner[static_cast<size_t>(stage)] = most->first;
  }
}

}  // namespace

Result<Rows> rows_of(const tenon_schedule& schedule, const tenon_schedule_config& config,
                     const std::string& who) {
  TENON_CHECK(check_config(config, who));
  Rows rows{config.ranks, config.stages, config.microbatches, {}, {}};
  for (int32_t stage = 0; stage < config.stages; ++stage)
    rows.owner.push_back(schedule.owner(&config, stage));
  Emitted emitted;
  emitted.of_rank.resize(static_cast<size_t>(config.ranks));
  tenon_error error = empty_abi_error();
  const tenon_code code = schedule.rows(&config, collect, &emitted, &error);
  if (code != TENON_OK) {
    Error out = from_abi(code, error, who);
    if (code == TENON_E_ARGUMENT) out.code = "S001";
    return out;
  }
  if (emitted.out_of_memory) {
    return refuse_rows("E010", "out of memory for the rows of a schedule", who,
                       "fewer microbatches or stages");
  }
  if (emitted.unknown_rank) {
    return refuse_rows(
        "S003", fmt::format("a row of rank {}, where there are {}", *emitted.unknown_rank, config.ranks), who,
        "the plugin must name only ranks of its config");
  }
  TENON_CHECK(check_emitted(emitted, who));
  rows.of_rank = std::move(emitted.of_rank);
  const Status checked = check_rows(rows);
  if (checked.ok()) return rows;
  Error out = checked.error();
  out.place = out.place.empty() ? who : who + ", " + out.place;
  return out;
}

Result<Rows> parse_rows(const Json& document, int microbatches, const std::string& place) {
  if (!document.is_array() || document.empty()) {
    return refuse_rows("S002", "rows must be a list with a string for each pipeline rank", place,
                       R"(for instance ["F0.0 B0.0", "F1.0 B1.0"])");
  }
  Rows rows;
  rows.ranks = static_cast<int>(document.size());
  rows.microbatches = microbatches;
  for (size_t rank = 0; rank < document.size(); ++rank) {
    const std::string here = fmt::format("{}/{}", place, rank);
    if (!document[rank].is_string()) {
      return refuse_rows("S002", "the rows of a rank must be a string", here, R"(for instance "F0.0 B0.0")");
    }
    TENON_TRY(auto list, parse_rank(document[rank].get<std::string>(), here));
    rows.of_rank.push_back(std::move(list));
  }
  find_owners(rows);
  const Status checked = check_rows(rows);
  if (checked.ok()) return rows;
  Error out = checked.error();
  out.place = out.place.empty() ? place : place + ", " + out.place;
  return out;
}

Error refuse_rows(const char* code, std::string cause, std::string place, std::string fix) {
  return Error{code, std::move(cause), std::move(place), std::move(fix), TENON_E_RECIPE};
}

std::string text_of(const Row& row) {
  return fmt::format("{}{}.{}", kLetters.at(static_cast<size_t>(row.kind)), row.stage, row.microbatch);
}

std::vector<std::string> text_of(const Rows& rows) {
  std::vector<std::string> out;
  for (const auto& rank : rows.of_rank) {
    std::string& text = out.emplace_back();
    for (size_t i = 0; i < rank.size(); ++i) {
      const bool joined = i > 0 && rank[i].overlap > 0 && rank[i].overlap == rank[i - 1].overlap;
      if (i > 0) text += joined ? '&' : ' ';
      text += text_of(rank[i]);
    }
  }
  return out;
}

}  // namespace tenon
