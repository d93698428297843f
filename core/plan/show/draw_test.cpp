#include "plan/show/draw.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "base/json.h"
#include "graph/transfer.h"
#include "picture.hpp"
#include "plan/show/lanes.h"

namespace tenon {
namespace {

const std::vector<Span> kSpans = {{1, "compute", "B1.0", "backward", 0, 4, 8},
                                  {0, "compute", "F0.0", "forward", 0, 0, 2},
                                  {0, "compute", "F0.1", "forward", 1, 2, 4},
                                  {0, "dp", "a<b & \"c\"", "all_reduce", -1, 3, 5},
                                  {0, "compute", "B0.0", "backward", 0, 4, 8}};

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// {x, y, width, height} of the rectangle with this title.
std::vector<double> box_of(const std::string& svg, const std::string& title) {
  const std::regex form(
      "<rect x=\"([^\"]*)\" y=\"([^\"]*)\" width=\"([^\"]*)\" height=\"([^\"]*)\"[^>]*><title>" + title);
  std::smatch match;
  if (!std::regex_search(svg, match, form)) throw std::runtime_error("no box titled " + title);
  return {std::stod(match[1]), std::stod(match[2]), std::stod(match[3]), std::stod(match[4])};
}

TEST(Svg, places_spans_by_time_and_lane) {
  const std::string svg = svg_of(kSpans, {.title = "A title"});
  const auto f0 = box_of(svg, "F0.0 \\(microbatch 0\\): 0 to 2"), f1 = box_of(svg, "F0.1"),
             b0 = box_of(svg, "B0.0"), b1 = box_of(svg, "B1.0"),
             dp = box_of(svg, "a&lt;b &amp; &quot;c&quot;: 3 to 5");
  EXPECT_NEAR(f0[2], f1[2], 0.11);
  EXPECT_NEAR(f0[0] + f0[2], f1[0], 0.11);
  EXPECT_NEAR(b0[2], 2 * f0[2], 0.21);
  EXPECT_NEAR(b1[0] + b1[2] - f0[0], 4 * f0[2], 0.31);  // the last ends at the right edge
  EXPECT_EQ(f0[1], f1[1]);
  EXPECT_GT(dp[1], b0[1]);  // below the rank's other lane, above the next rank's
  EXPECT_LT(dp[1], b1[1]);
}

// Shares of the height of the boxes with this label, by start.
std::vector<double> heights_of(const std::vector<Span>& spans, const std::string& label) {
  std::vector<double> out;
  for (const Box& box : boxes_of(lanes_of(spans)[0], {})) {
    if (box.label == label) out.push_back(box.height);
  }
  return out;
}

TEST(Svg, spans_that_overlap_share_the_height_of_their_lane_while_they_do) {
  const std::vector<Span> spans = {{0, "compute", "F0.0", "forward", 0, 0, 2},
                                   {0, "compute", "F0.1", "forward", 1, 2, 4},
                                   {0, "compute", "B0.0", "backward", 0, 3, 7}};
  EXPECT_EQ(heights_of(spans, "F0.0"), (std::vector<double>{1}));
  EXPECT_EQ(heights_of(spans, "F0.1"), (std::vector<double>{1, 0.5}));
  EXPECT_EQ(heights_of(spans, "B0.0"), (std::vector<double>{0.5, 1}));
}

TEST(Svg, is_well_formed_and_names_lanes_and_categories) {
  const std::string svg = svg_of(kSpans, {.title = "<title>", .unit = "&"});
  EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
  EXPECT_EQ(count(svg, "<svg"), 1u);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
  EXPECT_NE(svg.find(">&lt;title&gt;</text>"), std::string::npos);
  EXPECT_EQ(count(svg, ">&amp;</text>"), 1u);
  for (const char* text :
       {"rank 0 compute", "rank 0 dp", "rank 1 compute", "all_reduce", "forward", "backward"}) {
    EXPECT_EQ(count(svg, ">" + std::string(text) + "</text>"), 1u) << text;
  }
  const std::regex box("<rect [^>]*fill=\"(#[0-9a-f]{6})\"[^>]*><title>(F0.0|F0.1|B0.0)");
  std::map<std::string, std::string> colour;
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), box); it != std::sregex_iterator(); ++it) {
    colour[(*it)[2]] = (*it)[1];
  }
  EXPECT_EQ(colour.at("F0.0"), colour.at("F0.1"));
  EXPECT_NE(colour.at("F0.0"), colour.at("B0.0"));
}

TEST(Svg, writes_the_microbatch_where_the_label_does_not_fit) {
  std::vector<Span> spans;
  for (int i = 0; i < 50; ++i)
    spans.push_back({0, "compute", "a long label", "forward", i + 100, 1.0 * i, 1.0 * i + 1});
  EXPECT_EQ(count(svg_of(spans, {}), ">a long label</text>"), 0u);
  EXPECT_EQ(count(svg_of(spans, {}), ">137</text>"), 1u);
  spans.resize(5);
  EXPECT_EQ(count(svg_of(spans, {}), ">a long label</text>"), 5u);
  for (Span& span : spans) span.microbatch = -1;
  EXPECT_EQ(count(svg_of(spans, {}), ">a long label</text>"), 1u) << "spans alike are one";
  EXPECT_EQ(count(svg_of(spans, {}), ">-1</text>"), 0u);
}

TEST(Svg, higher_shades_are_darker) {
  std::vector<Span> spans = {{0, "compute", "F0.0", "forward", 0, 0, 1},
                             {0, "compute", "F1.0", "forward", 0, 1, 2}};
  spans[1].shade = 1;
  const std::string svg = svg_of(spans, {});
  EXPECT_EQ(count(svg, "fill=\"#8ab4f8\" class"), 1u);
  EXPECT_EQ(count(svg, "fill=\"#7396ce\" class"), 1u);
}

TEST(Svg, every_category_has_a_colour_of_its_own) {
  std::vector<std::string> all = {"forward",         "backward", "input gradient",
                                  "weight gradient", "update",   "something else"};
  for (const TransferRow& row : transfer_table()) all.emplace_back(row.name);
  const auto channel = [](const std::string& category, size_t at) {
    return std::stoi(colour_of(category).substr(1 + 2 * at, 2), nullptr, 16);
  };
  for (const std::string& a : all) {
    for (const std::string& b : all) {
      int distance = 0;
      for (size_t i = 0; i < 3; ++i) distance += std::abs(channel(a, i) - channel(b, i));
      EXPECT_TRUE(a == b || distance >= 60) << a << " and " << b << ": " << distance;
    }
  }
}

TEST(Svg, the_unit_of_time_fits_the_time) {
  EXPECT_EQ(in_unit_for(2.5).unit, "s");
  EXPECT_EQ(in_unit_for(0.5).unit, "ms");
  EXPECT_EQ(in_unit_for(0.0005).unit, "\u00b5s");
  EXPECT_EQ(in_unit_for(3e-9).unit, "ns");
  const std::string svg = svg_of({{0, "compute", "F", "forward", -1, 0, 0.0005}}, in_unit_for(0.0005));
  EXPECT_EQ(count(svg, ">500</text>"), 1u);
  EXPECT_EQ(count(svg, ">\u00b5s</text>"), 1u);
}

TEST(Svg, lanes_in_which_nothing_takes_time_are_left_out) {
  std::vector<Span> spans = kSpans;
  spans.push_back({1, "tp", "all_reduce", "all_reduce", -1, 3, 3});
  EXPECT_EQ(count(svg_of(spans, {}), "class=\"lane\""), 3u);
}

// Spans at random times, most of them far thinner than a pixel, and what of each lane is coloured.
TEST(Svg, colours_of_each_lane_the_share_of_time_in_which_it_is_busy) {
  std::mt19937 random(5);
  for (const double longest : {1e-4, 1e-3, 0.02, 0.3}) {
    for (const double gap : {0.1, 1.0, 30.0}) {
      std::vector<Span> spans;
      std::vector<double> busy;
      for (int rank = 0; rank < 4; ++rank) {
        double now = 0, sum = 0;
        std::uniform_real_distribution<double> share(0, 1);
        for (int i = 0; now < 1 && i < 200000; ++i) {
          const double start = now + gap * longest * share(random);
          const double end = std::min(start + longest * share(random), 1.0);
          if (start >= 1) break;
          const char* kinds[] = {"forward", "backward", "update"};
          const auto kind = static_cast<size_t>(3 * share(random));
          spans.push_back({rank, "compute", kinds[kind], kinds[kind], -1, start, end});
          sum += end - start;
          now = end;
        }
        if (sum > 0) busy.push_back(sum);
      }
      spans.push_back({9, "compute", "all", "forward", -1, 0, 1});
      busy.push_back(1);
      const std::string svg = svg_of(spans, {});
      const auto coloured = test::coloured_shares(svg);
      ASSERT_EQ(coloured.size(), busy.size());
      for (size_t i = 0; i < busy.size(); ++i)
        EXPECT_NEAR(coloured[i], busy[i], 0.02) << longest << " " << gap;
      EXPECT_LT(svg.size(), 300u << 10) << longest << " " << gap;
    }
  }
}

TEST(Svg, of_nothing_is_a_picture) {
  EXPECT_NE(svg_of({}, {.title = "empty"}).find("</svg>"), std::string::npos);
}

TEST(ChromeTrace, has_a_process_a_rank_and_a_thread_a_lane) {
  std::vector<Span> given = kSpans;
  given[0].details = {{"bytes", int64_t{12}}, {"op", "linear"}};
  const auto document = parse_json(chrome_trace_of(given, 1000), "trace");
  ASSERT_TRUE(document.ok());
  const Json& events = document->at("traceEvents");
  std::map<std::string, Json> spans;
  std::map<std::pair<int, int>, std::string> threads;
  int processes = 0;
  for (const Json& event : events) {
    if (event["ph"] == "X") spans[event["name"].get<std::string>()] = event;
    if (event["name"] == "process_name") ++processes;
    if (event["name"] == "thread_name") threads[{event["pid"], event["tid"]}] = event["args"]["name"];
  }
  EXPECT_EQ(processes, 2);
  EXPECT_EQ(threads.size(), 3u);
  ASSERT_EQ(spans.size(), kSpans.size());
  const Json& b1 = spans.at("B1.0");
  EXPECT_EQ(b1["ts"], 4000.0);
  EXPECT_EQ(b1["dur"], 4000.0);
  EXPECT_EQ(b1["cat"], "backward");
  EXPECT_EQ(b1["pid"], 1);
  EXPECT_EQ(b1["args"], (Json{{"microbatch", 0}, {"bytes", 12}, {"op", "linear"}}));
  EXPECT_FALSE(spans.at("a<b & \"c\"").contains("args"));
  EXPECT_EQ((threads.at({0, spans.at("a<b & \"c\"")["tid"]})), "dp");
  EXPECT_EQ((threads.at({0, spans.at("F0.0")["tid"]})), "compute");
}

}  // namespace
}  // namespace tenon
