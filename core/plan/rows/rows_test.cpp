// Rows written by hand, and every way in which rows are no schedule.
#include "plan/rows/rows.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "plan/rows/replay.h"

namespace tenon {
namespace {

using Texts = std::vector<std::string>;

Result<Rows> parse(const Texts& texts, int microbatches) {
  return parse_rows(Json(texts), microbatches, "/rows");
}

// 1F1B on two ranks.
const Texts kGood = {"F0.0 F0.1 B0.0 B0.1", "F1.0 B1.0 F1.1 B1.1"};

TEST(Rows, written_by_hand_are_read) {
  const auto rows = parse({"F0.0 F0.1&B3.1  I0.0\tW0.0 ", "F1.0", "F2.12", "F3.0"}, 1);
  ASSERT_FALSE(rows.ok());  // read, but no schedule
  const auto good = parse(kGood, 2);
  ASSERT_TRUE(good.ok()) << good.error().text();
  EXPECT_EQ(good->ranks, 2);
  EXPECT_EQ(good->stages, 2);
  EXPECT_EQ(good->microbatches, 2);
  EXPECT_EQ(good->owner, (std::vector<int>{0, 1}));
  EXPECT_EQ(good->of_rank[1][1], (Row{RowKind::backward, 1, 0, 0}));
}

TEST(Rows, are_written_as_they_are_read) {
  const Texts texts = {"F0.0 F1.0 F0.1 I1.0 F1.1&I0.0 W1.0&W0.0 B1.1 B0.1"};
  const auto rows = parse(texts, 2);
  ASSERT_TRUE(rows.ok()) << rows.error().text();
  EXPECT_EQ(text_of(*rows), texts);
  EXPECT_NE(rows->of_rank[0][4].overlap, 0);
  EXPECT_EQ(rows->of_rank[0][4].overlap, rows->of_rank[0][5].overlap);
  EXPECT_NE(rows->of_rank[0][4].overlap, rows->of_rank[0][6].overlap);
}

struct Fault {
  const char* what;
  Texts texts;
  int microbatches;
  const char* code;
  const char* cause;
  const char* place;
};

const std::vector<Fault> kFaults = {
    {"an unknown kind", {"F0.0 X0.0"}, 1, "S002", "word 2 of the rows is 'X0.0'", "/rows/0"},
    {"no microbatch", {"F0.0 B0"}, 1, "S002", "'B0'", "/rows/0"},
    {"a negative number", {"F0.-1"}, 1, "S002", "'F0.-1'", "/rows/0"},
    {"a number beyond all", {"F0.99999999999"}, 1, "S002", "'F0.99999999999'", "/rows/0"},
    {"letters behind", {"F0.0x"}, 1, "S002", "'F0.0x'", "/rows/0"},
    {"nothing behind &", {"F0.0& B0.0"}, 1, "S002", "'F0.0&'", "/rows/0"},
    {"no rows", {""}, 1, "S003", "0 stages", "/rows"},
    {"no microbatches", {"F0.0 B0.0"}, 0, "S003", "0 microbatches", "/rows"},
    {"too many stages", {"F99999999.0"}, 1, "S003", "100000000 stages", "/rows"},
    {"a stage left out", {"F0.0 B0.0 F2.0 B2.0"}, 1, "S003", "stage 1 is on none of the 1 ranks", "/rows"},
    {"a last rank without a stage", {"F0.0 B0.0", ""}, 1, "S003", "rank 1 of 2 has no stage", "/rows"},
    {"a rank without a stage",
     {"F0.0 B0.0", "", "F1.0 B1.0"},
     1,
     "S003",
     "rank 1 of 3 has no stage",
     "/rows"},
    {"a microbatch too many", kGood, 1, "S003", "F0.1 (stage 0, microbatch 1, overlap 0)",
     "/rows, row 2 of rank 0"},
    {"a lost microbatch",
     {"F0.0 B0.0", "F1.0 B1.0 F1.1 B1.1"},
     2,
     "S004",
     "F0.1 is missing: microbatch 1 of 2 at stage 0",
     "/rows, rank 0"},
    {"a lost microbatch everywhere", kGood, 3, "S004", "F0.2 is missing", "/rows, rank 0"},
    {"a lost forward", {"F0.0 B0.0", "B1.0"}, 1, "S004", "F1.0 is missing", "/rows, rank 1"},
    {"a lost weight gradient", {"F0.0 I0.0"}, 1, "S004", "W0.0 is missing", "/rows, rank 0"},
    {"a lost input gradient", {"F0.0 W0.0"}, 1, "S004", "I0.0 is missing", "/rows, rank 0"},
    {"a lost backward", {"F0.0 B0.0", "F1.0"}, 1, "S004", "B1.0 is missing", "/rows, rank 1"},
    {"a lost backward among split ones",
     {"F0.0 I0.0 W0.0", "F1.0"},
     1,
     "S004",
     "I1.0 is missing",
     "/rows, rank 1"},
    {"a backward twice",
     {"F0.0 B0.0 B0.0"},
     1,
     "S005",
     "B0.0 is done by row 2 (B0.0) of rank 0 already",
     "/rows, row 3 (B0.0) of rank 0"},
    {"a backward behind an input gradient",
     {"F0.0 I0.0 B0.0"},
     1,
     "S005",
     "I0.0 is done by row 2 (I0.0) of rank 0 already",
     "/rows, row 3 (B0.0) of rank 0"},
    {"a forward twice",
     {"F0.0 B0.0 F0.0"},
     1,
     "S005",
     "F0.0 is done by row 1 (F0.0) of rank 0 already",
     "/rows, row 3 (F0.0) of rank 0"},
    {"a weight gradient behind both",
     {"F0.0 B0.0 W0.0"},
     1,
     "S005",
     "W0.0 is done by row 2 (B0.0)",
     "/rows, row 3 (W0.0) of rank 0"},
    {"a row on the wrong rank",
     {"F0.0 F0.1 F1.1 B0.0 B0.1", "F1.0 B1.0 B1.1"},
     2,
     "S006",
     "stage 1 is on rank 1",
     "/rows, row 3 (F1.1) of rank 0"},
    {"backward before forward",
     {"F0.0 B0.0", "B1.0 F1.0"},
     1,
     "S007",
     "row 1 (B1.0) of rank 1 needs row 2 (F1.0) of rank 1, which stands behind row 1",
     "/rows, row 1 (B1.0) of rank 1"},
    {"weight before input gradient",
     {"F0.0 W0.0 I0.0"},
     1,
     "S007",
     "row 2 (W0.0) of rank 0 needs row 3 (I0.0) of rank 0, which stands behind row 2",
     "row 2 (W0.0) of rank 0"},
    {"ranks in opposite orders",
     {"F0.0 B0.0 F0.1 B0.1", "F1.1 B1.1 F1.0 B1.0"},
     2,
     "S007",
     "row 2 (B0.0) of rank 0 needs row 4 (B1.0) of rank 1, which stands behind row 1; row 1 (F1.1) of rank 1 "
     "needs "
     "row 3 (F0.1) of rank 0, which stands behind row 2",
     "row 2 (B0.0) of rank 0"},
    {"interleaved rows that need each other",
     {"F0.0&B0.0"},
     1,
     "S008",
     "needs row 1 (F0.0) of rank 0",
     "row 2 (B0.0) of rank 0"},
    {"interleaved rows that need each other by way of another rank",
     {"F0.0&F2.0 B2.0 B0.0", "F1.0 B1.0"},
     1,
     "S007",
     "row 2 (F2.0) of rank 0 needs row 1 (F1.0) of rank 1; row 1 (F1.0) of rank 1 needs row 1 (F0.0) of rank "
     "0",
     "row 2 (F2.0) of rank 0"},
};

TEST(Rows, that_are_no_schedule_are_refused) {
  for (const Fault& fault : kFaults) {
    const auto rows = parse(fault.texts, fault.microbatches);
    ASSERT_FALSE(rows.ok()) << fault.what;
    EXPECT_EQ(rows.error().code, fault.code) << fault.what << "\n" << rows.error().text();
    EXPECT_NE(rows.error().cause.find(fault.cause), std::string::npos) << fault.what << "\n"
                                                                       << rows.error().text();
    EXPECT_NE(rows.error().place.find(fault.place), std::string::npos) << fault.what << "\n"
                                                                       << rows.error().text();
    EXPECT_FALSE(rows.error().fix.empty()) << fault.what;
  }
}

TEST(Rows, of_another_form_are_refused) {
  for (const char* text : {"{}", "[]", "\"F0.0 B0.0\"", "[1]", "[\"F0.0 B0.0\", null]"}) {
    const auto rows = parse_rows(Json::parse(text), 1, "/rows");
    ASSERT_FALSE(rows.ok()) << text;
    EXPECT_EQ(rows.error().code, "S002") << text;
  }
}

TEST(Rows, that_contradict_their_shape_are_refused) {
  const Rows good = parse(kGood, 2).value();
  ASSERT_TRUE(check_rows(good).ok());
  const auto refused = [](const Rows& rows) {
    return check_rows(rows).ok() ? "" : check_rows(rows).error().code;
  };
  Rows rows = good;
  rows.of_rank.pop_back();
  EXPECT_EQ(refused(rows), "S003");
  rows = good;
  rows.owner.pop_back();
  EXPECT_EQ(refused(rows), "S003");
  rows = good;
  rows.owner[1] = 2;
  EXPECT_EQ(refused(rows), "S003");
  rows = good;
  rows.of_rank[0][0].kind = static_cast<RowKind>(7);
  EXPECT_EQ(refused(rows), "S003");
  EXPECT_EQ(check_rows(rows).error().cause.substr(0, 33), "kind 7, which none is (stage 0, m");
  rows = good;
  rows.of_rank[0][0].overlap = -1;
  EXPECT_EQ(refused(rows), "S003");
  rows = good;
  rows.owner[1] = 0;  // rank 1 has none
  EXPECT_EQ(refused(rows), "S003");
  rows.owner = {1, 0};
  EXPECT_EQ(refused(rows), "S006");
}

TEST(Rows, interleaved_must_be_neighbours) {
  Rows rows = parse(kGood, 2).value();
  rows.of_rank[0][0].overlap = rows.of_rank[0][2].overlap = 5;
  const auto status = check_rows(rows);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, "S008");
  EXPECT_NE(status.error().cause.find("row 1 (F0.0) of rank 0, which stands apart"), std::string::npos);
}

// Whether anything reaches itself, rows of a block being one node. Independent of the check's way.
bool has_cycle(const Rows& rows) {
  std::vector<RowRef> nodes;
  for (int rank = 0; rank < rows.ranks; ++rank) {
    for (int i = 0; i < static_cast<int>(rows.of_rank[static_cast<size_t>(rank)].size()); ++i)
      nodes.push_back({rank, i});
  }
  const auto at = [&](size_t n) -> const Row& {
    return rows.of_rank[static_cast<size_t>(nodes[n].rank)][static_cast<size_t>(nodes[n].row)];
  };
  const auto gives = [&](size_t n, RowKind kind, int stage, int mb) {
    const Row& row = at(n);
    const bool both = row.kind == RowKind::backward && kind != RowKind::forward;
    return (row.kind == kind || both) && row.stage == stage && row.microbatch == mb;
  };
  const size_t count = nodes.size();
  std::vector<std::vector<char>> reach(count, std::vector<char>(count, 0));
  for (size_t a = 0; a < count; ++a) {
    for (size_t b = 0; b < count; ++b) {
      const Row& to = at(b);
      const bool forward = to.kind == RowKind::forward, weight = to.kind == RowKind::weight_grad;
      if (nodes[a].rank == nodes[b].rank && nodes[a].row + 1 == nodes[b].row) reach[a][b] = 1;
      if (forward && gives(a, RowKind::forward, to.stage - 1, to.microbatch)) reach[a][b] = 1;
      if (weight && gives(a, RowKind::input_grad, to.stage, to.microbatch)) reach[a][b] = 1;
      if (!forward && !weight && gives(a, RowKind::forward, to.stage, to.microbatch)) reach[a][b] = 1;
      if (!forward && !weight && gives(a, RowKind::input_grad, to.stage + 1, to.microbatch)) reach[a][b] = 1;
    }
  }
  for (size_t k = 0; k < count; ++k) {
    for (size_t a = 0; a < count; ++a) {
      for (size_t b = 0; b < count; ++b)
        reach[a][b] = reach[a][b] != 0 || (reach[a][k] != 0 && reach[k][b] != 0);
    }
  }
  for (size_t a = 0; a < count; ++a) {
    if (reach[a][a] != 0) return true;
  }
  return false;
}

TEST(Rows, are_refused_for_their_order_exactly_where_it_has_a_cycle) {
  std::mt19937 random(7);
  const Rows good = parse({"F0.0 F0.1 F3.0 I3.0 I0.0 W3.0 W0.0 F3.1 B3.1 B0.1",
                           "F1.0 F2.0 F1.1 F2.1 B2.0 B1.0 I2.1 I1.1 W2.1 W1.1"},
                          2)
                        .value();
  int refused = 0, accepted = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    Rows rows = good;
    const int swaps = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < swaps; ++i) {
      std::vector<Row>& list = rows.of_rank[random() % 2];
      const size_t a = random() % list.size(), distance = 1 + random() % 3;
      std::swap(list[a], list[(a + distance) % list.size()]);
    }
    const auto status = check_rows(rows);
    ASSERT_EQ(!status.ok(), has_cycle(rows)) << text_of(rows)[0] << "\n" << text_of(rows)[1];
    ++(status.ok() ? accepted : refused);
    ASSERT_EQ(status.ok() ? "S007" : status.error().code, "S007");
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(accepted, 200);
}

// -- plugins that break the contract ----------------------------------------------------------------------

int32_t own(const tenon_schedule_config* config, int32_t stage) { return stage % config->ranks; }
using Emit = void (*)(void*, int32_t, const tenon_row*);

tenon_code emit_good(const tenon_schedule_config*, Emit emit, void* arg, tenon_error*) {
  const tenon_row rows[] = {{TENON_ROW_FORWARD, 0, 0, 0}, {TENON_ROW_BACKWARD, 0, 0, 0}};
  for (const tenon_row& row : rows) emit(arg, 0, &row);
  return TENON_OK;
}
tenon_code emit_unknown_rank(const tenon_schedule_config* config, Emit emit, void* arg, tenon_error*) {
  const tenon_row row = {TENON_ROW_FORWARD, 0, 0, 0};
  emit(arg, config->ranks, &row);
  return TENON_OK;
}
tenon_code emit_nothing(const tenon_schedule_config*, Emit, void*, tenon_error*) { return TENON_OK; }
tenon_code refuse(const tenon_schedule_config*, Emit, void*, tenon_error* error) {
  std::snprintf(error->message, sizeof error->message, "not on a Sunday");
  return TENON_E_ARGUMENT;
}

Result<Rows> from(decltype(tenon_schedule::rows) rows, int32_t ranks, int32_t stages, int32_t microbatches) {
  const tenon_schedule table = {sizeof table, 0, own, rows};
  const tenon_schedule_config config = {sizeof config, 0, nullptr, nullptr, ranks, stages, microbatches, 0};
  return rows_of(table, config, "schedule/test");
}

TEST(Rows, of_a_plugin_are_checked) {
  ASSERT_TRUE(from(emit_good, 1, 1, 1).ok());
  const auto code = [](const Result<Rows>& rows) { return rows.ok() ? "" : rows.error().code; };
  EXPECT_EQ(code(from(emit_unknown_rank, 1, 1, 1)), "S003");
  EXPECT_EQ(code(from(emit_nothing, 1, 1, 1)), "S004");
  const auto refused = from(refuse, 1, 1, 1);
  EXPECT_EQ(code(refused), "S001");
  EXPECT_EQ(refused.error().cause, "not on a Sunday");
  EXPECT_EQ(refused.error().place, "schedule/test");
  EXPECT_EQ(from(emit_nothing, 1, 1, 1).error().place, "schedule/test, rank 0");
}

TEST(Rows, of_a_config_that_is_none_are_not_asked_for) {
  for (const auto& [ranks, stages, microbatches] :
       {std::tuple{0, 0, 1}, {-1, 1, 1}, {2, 1, 1}, {2, 3, 1}, {1, 1, 0}, {1, 1 << 15, 1 << 15}}) {
    const auto rows = from(emit_good, ranks, stages, microbatches);
    ASSERT_FALSE(rows.ok());
    EXPECT_EQ(rows.error().code, "S001");
  }
}

}  // namespace
}  // namespace tenon
