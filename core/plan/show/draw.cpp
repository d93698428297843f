#include "plan/show/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace tenon {
namespace {

// Pixels.
constexpr double kMargin = 12, kTitle = 24, kNames = 110, kWidth = 1100, kLane = 26, kGap = 4, kAxis = 34;
constexpr double kLetter = 6.2;  // of a label

// -- lanes ----------------------------------------------------------------------------------------------

struct Lane {
  int rank = 0;
  std::string name;
  std::vector<const Span*> spans;  // by start
};

std::vector<Lane> lanes_of(const std::vector<Span>& spans) {
  std::vector<Lane> lanes;
  for (const Span& span : spans) {
    auto lane = std::find_if(lanes.begin(), lanes.end(),
                             [&](const Lane& l) { return l.rank == span.rank && l.name == span.lane; });
    if (lane == lanes.end()) lane = lanes.insert(lanes.end(), Lane{span.rank, span.lane, {}});
    lane->spans.push_back(&span);
  }
  std::stable_sort(lanes.begin(), lanes.end(), [](const Lane& a, const Lane& b) { return a.rank < b.rank; });
  for (Lane& lane : lanes) {
    std::stable_sort(lane.spans.begin(), lane.spans.end(),
                     [](const Span* a, const Span* b) { return a->start < b->start; });
  }
  return lanes;
}

// Where a span lies among those of its lane that it overlaps, directly or through others.
struct Slot {
  const Span* span = nullptr;
  size_t track = 0;
  size_t tracks = 1;
};

std::vector<Slot> slots_of(const Lane& lane) {
  std::vector<Slot> out;
  std::vector<double> free_at;  // by track, of the cluster that grows
  size_t cluster = 0;           // its first slot
  double cluster_end = 0;
  const auto close = [&] {
    for (; cluster < out.size(); ++cluster) out[cluster].tracks = free_at.size();
    free_at.clear();
  };
  for (const Span* span : lane.spans) {
    if (span->start >= cluster_end) close();
    const auto track =
        std::find_if(free_at.begin(), free_at.end(), [&](double end) { return end <= span->start; });
    out.push_back({span, static_cast<size_t>(track - free_at.begin()), 1});
    if (track == free_at.end())
      free_at.push_back(span->end);
    else
      *track = span->end;
    cluster_end = std::max(cluster_end, span->end);
  }
  close();
  return out;
}

// -- SVG ------------------------------------------------------------------------------------------------

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

// A number as short as a tenth of a pixel allows.
std::string pixels(double value) { return fmt::format("{:g}", std::round(value * 10) / 10); }

// The usual colours of pipeline diagrams for what they show, others for the rest in order of appearance.
std::map<std::string, std::string> colours_of(const std::vector<Span>& spans) {
  constexpr const char* kOthers[] = {"#c9a0dc", "#f2cf63", "#9ad0d0", "#f0a8b8", "#b5b5b5", "#c8b090"};
  std::map<std::string, std::string> out = {{"forward", "#8ab4f8"},
                                            {"backward", "#81c995"},
                                            {"input gradient", "#a8dab5"},
                                            {"weight gradient", "#f9b872"}};
  size_t next = 0;
  for (const Span& span : spans) {
    if (out.contains(span.category)) continue;
    out.emplace(span.category, kOthers[next++ % std::size(kOthers)]);
  }
  return out;
}

// "#8ab4f8", a sixth darker for each step of shade.
std::string shaded(const std::string& colour, int shade) {
  std::string out = "#";
  for (size_t at = 1; at < colour.size(); at += 2) {
    const double bright =
        std::stoi(colour.substr(at, 2), nullptr, 16) * std::pow(5.0 / 6, std::max(0, shade));
    out += fmt::format("{:02x}", static_cast<int>(bright));
  }
  return out;
}

class Picture {
 public:
  Picture(const std::vector<Span>& spans, const std::string& title, const std::string& unit)
      : lanes_(lanes_of(spans)), colours_(colours_of(spans)), title_(title), unit_(unit) {
    for (const Span& span : spans) {
      duration_ = std::max(duration_, span.end);
      if (std::find(categories_.begin(), categories_.end(), span.category) == categories_.end()) {
        categories_.push_back(span.category);
      }
    }
  }

  std::string draw() {
    const double height = kTitle + static_cast<double>(lanes_.size()) * (kLane + kGap) + kAxis + 2 * kMargin;
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
        "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
        pixels(kNames + kWidth + 2 * kMargin), pixels(height));
    text(kMargin, kMargin + 12, "start", title_, " font-size=\"14\"");
    draw_legend();
    for (size_t i = 0; i < lanes_.size(); ++i) draw_lane(lanes_[i], top_of(i));
    draw_axis(top_of(lanes_.size()));
    return out_ + "</svg>\n";
  }

 private:
  static double top_of(size_t lane) { return kMargin + kTitle + static_cast<double>(lane) * (kLane + kGap); }
  double x_of(double time) const {
    return kMargin + kNames + (duration_ > 0 ? time / duration_ * kWidth : 0);
  }

  void text(double x, double y, const char* anchor, const std::string& words, const char* more = "") {
    out_ += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\"{}>{}</text>\n", pixels(x), pixels(y),
                        anchor, more, escaped(words));
  }

  void draw_legend() {
    double right = kMargin + kNames + kWidth;
    for (size_t i = categories_.size(); i-- > 0;) {
      const std::string& category = categories_[i];
      right -= static_cast<double>(category.size()) * kLetter;
      text(right, kMargin + 12, "start", category);
      right -= 16;
      out_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", pixels(right),
                          pixels(kMargin + 2), colours_.at(category));
      right -= 14;
    }
  }

  void draw_lane(const Lane& lane, double top) {
    out_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#f4f4f4\"/>\n",
                        pixels(x_of(0)), pixels(top), pixels(kWidth), pixels(kLane));
    text(x_of(0) - 8, top + kLane / 2 + 4, "end", fmt::format("rank {} {}", lane.rank, lane.name));
    for (const Slot& slot : slots_of(lane)) draw_span(slot, top);
  }

  void draw_span(const Slot& slot, double top) {
    const Span& span = *slot.span;
    const double height = kLane / static_cast<double>(slot.tracks);
    const double x = x_of(span.start), width = x_of(span.end) - x;
    const double y = top + height * static_cast<double>(slot.track);
    out_ += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"white\" "
        "stroke-width=\"0.7\"><title>{}{}: {:g} to {:g}</title></rect>\n",
        pixels(x), pixels(y), pixels(width), pixels(height), shaded(colours_.at(span.category), span.shade),
        escaped(span.label), span.microbatch < 0 ? "" : fmt::format(" (microbatch {})", span.microbatch),
        span.start, span.end);
    const std::string number = span.microbatch < 0 ? "" : fmt::format("{}", span.microbatch);
    for (const std::string& words : {span.label, number}) {
      if (width < static_cast<double>(words.size()) * kLetter || height < 10) continue;
      text(x + width / 2, y + height / 2 + 4, "middle", words);
      break;
    }
  }

  // About ten marks at 1, 2 or 5 times a power of ten.
  void draw_axis(double top) {
    if (duration_ <= 0) return;
    const double power = std::pow(10, std::floor(std::log10(duration_ / 10)));
    double step = power;
    for (const double factor : {2.0, 5.0, 10.0}) {
      if (duration_ / step > 12) step = power * factor;
    }
    for (int i = 0; i * step <= duration_ * (1 + 1e-9); ++i) {
      const double x = x_of(i * step);
      out_ += fmt::format("<line x1=\"{0}\" x2=\"{0}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#808080\"/>\n",
                          pixels(x), pixels(top), pixels(top + 5));
      text(x, top + 18, "middle", fmt::format("{:g}", i * step));
    }
    text(x_of(0) - 8, top + 18, "end", unit_);
  }

  std::vector<Lane> lanes_;
  std::map<std::string, std::string> colours_;
  std::vector<std::string> categories_;  // in order of appearance
  std::string title_, unit_;
  double duration_ = 0;
  std::string out_;
};

}  // namespace

std::string svg_of(const std::vector<Span>& spans, const std::string& title, const std::string& unit) {
  return Picture(spans, title, unit).draw();
}

std::string chrome_trace_of(const std::vector<Span>& spans, double microseconds) {
  Json events = Json::array();
  const std::vector<Lane> lanes = lanes_of(spans);
  for (size_t i = 0; i < lanes.size(); ++i) {
    const Lane& lane = lanes[i];
    if (i == 0 || lanes[i - 1].rank != lane.rank) {
      events.push_back({{"ph", "M"},
                        {"name", "process_name"},
                        {"pid", lane.rank},
                        {"args", {{"name", fmt::format("rank {}", lane.rank)}}}});
    }
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", lane.rank},
                      {"tid", i},
                      {"args", {{"name", lane.name}}}});
    for (const Span* span : lane.spans) {
      Json event = {{"ph", "X"},
                    {"name", span->label},
                    {"cat", span->category},
                    {"pid", lane.rank},
                    {"tid", i},
                    {"ts", span->start * microseconds},
                    {"dur", (span->end - span->start) * microseconds}};
      if (span->microbatch >= 0) event["args"]["microbatch"] = span->microbatch;
      for (const auto& detail : span->details)
        std::visit([&](const auto& value) { event["args"][detail.first] = value; }, detail.second);
      events.push_back(std::move(event));
    }
  }
  return canonical(Json{{"traceEvents", std::move(events)}});
}

}  // namespace tenon
