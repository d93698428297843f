// Rows and instructions as spans.
#include "plan/show/spans.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tenon {
namespace {

Rows parse(const std::vector<std::string>& texts, int microbatches) {
  auto rows = parse_rows(Json(texts), microbatches, "/rows");
  if (!rows.ok()) throw std::runtime_error(rows.error().text());
  return std::move(rows).value();
}

TEST(Spans, name_what_a_row_is) {
  const Rows rows = parse({"F0.0 I0.0 W0.0", "F1.0 B1.0"}, 1);
  const std::vector<Span> spans = spans_of(rows, simulate(rows, RowCost{}));
  ASSERT_EQ(spans.size(), 5u);
  EXPECT_EQ(spans[1].label, "I0.0");
  EXPECT_EQ(spans[1].category, "input gradient");
  EXPECT_EQ(spans[1].start, 4);
  EXPECT_EQ(spans[4].rank, 1);
  EXPECT_EQ(spans[4].category, "backward");
  EXPECT_EQ(spans[4].end, 4);
}

TEST(Spans, of_a_ranks_later_stages_are_darker) {
  const Rows rows = parse({"F0.0 F2.0 B2.0 B0.0", "F1.0 B1.0"}, 1);
  const std::vector<Span> spans = spans_of(rows, simulate(rows, RowCost{}));
  EXPECT_EQ(spans[0].shade, 0);
  EXPECT_EQ(spans[1].shade, 1);
  EXPECT_EQ(spans[4].shade, 0);
}

}  // namespace
}  // namespace tenon
