// The live line of training on terminals of any width: one line stays one line.
#include "terminal.hpp"

#include <thread>

#include "workplace.hpp"

namespace tenon::test {
namespace {

// Of rows that hold what the live line says: those that stand, and those that had no room in one row.
struct LiveRows {
  std::vector<std::string> standing;
  int broken = 0;
};

LiveRows live_rows(const Screen& screen) {
  LiveRows out;
  for (const Screen::Row& row : screen.rows()) {
    if (!row.text.starts_with("step ")) continue;
    out.standing.push_back(row.text);
    out.broken += row.goes_on ? 1 : 0;
  }
  return out;
}

class LiveLine : public testing::Test {
 protected:
  std::unique_ptr<Terminal> train(size_t columns, Screen::Wrap wrap, const std::vector<std::string>& more) {
    std::vector<std::string> argv{TENON, "train", "tiny.lua"};
    argv.insert(argv.end(), more.begin(), more.end());
    return std::make_unique<Terminal>(argv, place_.path(), columns, wrap);
  }
  Workplace place_;
};

TEST_F(LiveLine, stays_one_line_on_40_to_200_columns) {
  for (const size_t columns : {40, 47, 60, 79, 80, 81, 86, 87, 100, 132, 200}) {
    for (const auto wrap : {Screen::Wrap::late, Screen::Wrap::early}) {
      const auto terminal = train(columns, wrap, {"steps=30", "eval=10", "save=15"});
      ASSERT_EQ(terminal->finish(kPatience), 0);
      const LiveRows rows = live_rows(terminal->screen());
      const std::string what = std::to_string(columns) + " columns";
      // A line stays where something is said below it: an evaluation, a checkpoint, the end.
      ASSERT_EQ(rows.standing.size(), 4u) << what;
      EXPECT_EQ(rows.broken, 0) << what;
      const int steps[] = {10, 15, 20, 30};
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_TRUE(rows.standing[i].starts_with("step    " + std::to_string(steps[i]) + "/30  loss "))
            << what << ": " << rows.standing[i];
        EXPECT_LT(rows.standing[i].size(), columns);
      }
    }
  }
}

TEST_F(LiveLine, says_more_where_there_is_room) {
  size_t before = 0;
  for (const size_t columns : {40, 60, 120}) {
    const auto terminal = train(columns, Screen::Wrap::late, {"steps=8"});
    ASSERT_EQ(terminal->finish(kPatience), 0);
    const LiveRows rows = live_rows(terminal->screen());
    ASSERT_EQ(rows.standing.size(), 1u);
    EXPECT_GT(rows.standing[0].size(), before);
    before = rows.standing[0].size();
    EXPECT_EQ(rows.standing[0].find("iB") != std::string::npos, columns == 120) << rows.standing[0];
  }
}

TEST_F(LiveLine, is_plain_lines_where_the_terminal_cannot_erase) {
  for (const char* kind : {"dumb", ""}) {
    Terminal terminal({TENON, "train", "tiny.lua", "steps=5"}, place_.path(), 100, Screen::Wrap::late, kind);
    ASSERT_EQ(terminal.finish(kPatience), 0);
    const LiveRows rows = live_rows(terminal.screen());
    ASSERT_FALSE(rows.standing.empty());
    EXPECT_TRUE(rows.standing.back().starts_with("step     5/5")) << rows.standing.back();
    EXPECT_EQ(terminal.screen().escapes(), 0) << kind;
  }
}

TEST_F(LiveLine, follows_the_window) {
  const auto terminal = train(150, Screen::Wrap::late, {"steps=3000", "eval=2000"});
  ASSERT_TRUE(terminal->wait_for("step ", kPatience));
  terminal->resize(50);
  ASSERT_EQ(terminal->finish(kPatience), 0);
  const LiveRows rows = live_rows(terminal->screen());
  // The line that was about to be written when the window changed may still have the old width.
  EXPECT_LE(rows.broken, 1);
  ASSERT_GE(rows.standing.size(), 2u);
  EXPECT_LE(rows.standing.size(), 3u);
  EXPECT_LT(rows.standing.back().size(), 50u);
  EXPECT_TRUE(rows.standing.back().starts_with("step  3000/3000")) << rows.standing.back();
}

// A terminal tells all processes of the command, and each must take it for one key.
TEST_F(LiveLine, ctrl_c_once_saves_and_twice_ends) {
  const auto once = train(80, Screen::Wrap::late, {"steps=1000000", "--run-dir", "once"});
  ASSERT_TRUE(once->wait_for("step ", kPatience));
  once->type('\3');
  EXPECT_EQ(once->finish(kPatience), 75);
  EXPECT_EQ(once->screen().rows().at(once->screen().rows().size() - 2).text,
            "stopped and saved; go on with: tenon resume once");
  const auto twice = train(80, Screen::Wrap::late,
                           {"kernels=kernels/reference", "width=512", "batch=256", "--run-dir", "twice"});
  ASSERT_TRUE(twice->wait_for("memory of a rank", kPatience));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the step, which takes long, has begun
  twice->type('\3');
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  twice->type('\3');
  EXPECT_EQ(twice->finish(kPatience), -1);
  EXPECT_FALSE(std::filesystem::exists(place_.at("twice/checkpoints")));
}

}  // namespace
}  // namespace tenon::test
