// A built schedule plugin: its rows as the core sees them, and its refusals.
#pragma once

#include "plan/rows/times.h"
#include "plugin_host.hpp"

namespace tenon::test {

// Where work is, as words: "F0.0 F0.1 B0.0", rank by rank.
using RowTexts = std::vector<std::string>;

class ScheduleCase {
 public:
  explicit ScheduleCase(const std::string& name)
      : id_("schedule/" + name), plugin_(plugin_file("schedule", name), host_) {}

  Result<Rows> try_rows(int ranks, int stages, int microbatches) const {
    const tenon_schedule_config config = {sizeof config, 0,      host_.table(), nullptr,
                                          ranks,         stages, microbatches,  0};
    return rows_of(plugin_.table<tenon_schedule>(TENON_SCHEDULE), config, id_);
  }
  // An exception with the error's text where there are none.
  Rows rows(int ranks, int stages, int microbatches) const {
    auto rows = try_rows(ranks, stages, microbatches);
    if (!rows.ok()) throw std::runtime_error(rows.error().text());
    return std::move(rows).value();
  }
  RowTexts texts(int ranks, int stages, int microbatches) const {
    return text_of(rows(ranks, stages, microbatches));
  }
  // The text of the error; "" where there is none.
  std::string refusal(int ranks, int stages, int microbatches) const {
    const auto rows = try_rows(ranks, stages, microbatches);
    return rows.ok() ? "" : rows.error().text();
  }
  int32_t owner(int ranks, int stages, int stage) const {
    const tenon_schedule_config config = {sizeof config, 0, host_.table(), nullptr, ranks, stages, 1, 0};
    return plugin_.table<tenon_schedule>(TENON_SCHEDULE).owner(&config, stage);
  }
  const tenon_plugin& plugin() const { return plugin_.plugin(); }

 private:
  std::string id_;
  MockHost host_;
  LoadedPlugin plugin_;
};

// The most activations in memory, rank by rank.
inline std::vector<int> activations_of(const Rows& rows) { return simulate(rows, RowCost{}).activations; }

}  // namespace tenon::test
