#include "plan/show/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "graph/transfer.h"
#include "plan/show/lanes.h"

namespace tenon {
namespace {

// Pixels.
constexpr double kMargin = 12, kRow = 20, kNames = 110, kWidth = 1100, kAxis = 30;
constexpr double kFirstLane = 26, kOtherLane = 10;  // of a rank: its work, and each kind of its transfers
constexpr double kGap = 4, kRankGap = 6;
constexpr double kLetter = 6.2;  // of a label
constexpr double kSeen = 0.6;    // what is thinner is not seen

// -- colours --------------------------------------------------------------------------------------------

struct Colour {
  std::string category;
  const char* colour;
};

const char* colour_of_transfer(TransferKind kind) {
  switch (kind) {
    case TransferKind::all_reduce: return "#e57373";
    case TransferKind::reduce_scatter: return "#c2579b";
    case TransferKind::all_gather: return "#3fa7a0";
    case TransferKind::broadcast: return "#6d8594";
    case TransferKind::all_to_all: return "#f2cf3a";
    case TransferKind::permute: return "#a1887f";
    case TransferKind::send: return "#5c7fd6";
    case TransferKind::recv: return "#7fb800";
    case TransferKind::slice:
    case TransferKind::none: break;  // no transfer of a program
  }
  return "";
}

// In the order of legends; what has no category of its own is last.
std::vector<Colour> make_colours() {
  // The usual colours of pipeline diagrams for what they show.
  std::vector<Colour> out{{"forward", "#8ab4f8"},
                          {"backward", "#81c995"},
                          {"input gradient", "#b5e3a1"},
                          {"weight gradient", "#f9b872"},
                          {"update", "#c9a0dc"}};
  for (const TransferRow& row : transfer_table()) out.push_back({row.name, colour_of_transfer(row.kind)});
  out.push_back({"other", "#b5b5b5"});
  return out;
}

const std::vector<Colour>& colours() {
  static const std::vector<Colour> all = make_colours();
  return all;
}

size_t index_of(const std::string& category) {
  const auto known = std::ranges::find(colours(), category, &Colour::category);
  return std::min(static_cast<size_t>(known - colours().begin()), colours().size() - 1);
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

// A number as short as a hundredth of a pixel allows.
std::string pixels(double value) { return fmt::format("{:g}", std::round(value * 100) / 100); }

// A lane with what is drawn into it.
struct DrawnLane {
  int rank = 0;
  std::string name;
  double top = 0, height = 0;
  std::vector<Box> boxes;
};

class Picture {
 public:
  Picture(const std::vector<Span>& spans, const Caption& caption) : caption_(caption) {
    for (const Span& span : spans) duration_ = std::max(duration_, span.end);
    constexpr size_t kMost = 1500;  // boxes
    const std::vector<Lane> lanes = lanes_of(spans);
    double work = duration_ / kWidth, transfers = work;  // as if a pixel were so wide
    while (lay_out(lanes, work, transfers) > kMost && work < duration_) {
      if (transfers < 64 * work)
        transfers *= 2;
      else
        work *= 2;
    }
  }

  std::string draw() {
    const double height = bottom_ + kAxis + kMargin;
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
        "font-family=\"sans-serif\" font-size=\"11\">\n"
        "<style>.edge{{stroke:#000;stroke-opacity:.3;stroke-width:.6}}</style>\n"
        "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
        pixels(kNames + kWidth + 2 * kMargin), pixels(height));
    text(kMargin, kMargin + 12, "start", caption_.title, " font-size=\"14\"");
    if (!caption_.subtitle.empty())
      text(kMargin, kMargin + kRow + 11, "start", caption_.subtitle, " fill=\"#606060\"");
    draw_legend();
    for (const DrawnLane& lane : lanes_) draw_lane(lane);
    draw_axis(bottom_);
    return out_ + "</svg>\n";
  }

 private:
  double head() const { return kMargin + kRow * (caption_.subtitle.empty() ? 2 : 3) + 2; }
  double x_of(double time) const {
    return kMargin + kNames + (duration_ > 0 ? time / duration_ * kWidth : 0);
  }

  // How many boxes.
  size_t lay_out(const std::vector<Lane>& lanes, double work, double transfers) {
    // Work is blocks, with what it waits for within them; of transfers it is seen when they are.
    const Detail first{12 * work, work, 2 * work}, other{transfers, transfers, 12 * transfers};
    lanes_.clear();
    double top = head();
    size_t count = 0;
    for (const Lane& lane : lanes) {
      const bool same = !lanes_.empty() && lanes_.back().rank == lane.rank;
      DrawnLane drawn{lane.rank, lane.name, top, same ? kOtherLane : kFirstLane,
                      boxes_of(lane, same ? other : first)};
      if (drawn.boxes.empty()) continue;
      if (!lanes_.empty()) drawn.top += same ? kGap : kRankGap;
      top = drawn.top + drawn.height;
      count += drawn.boxes.size();
      lanes_.push_back(std::move(drawn));
    }
    bottom_ = top + kGap;
    return count;
  }

  void text(double x, double y, const char* anchor, const std::string& words, const char* more = "") {
    out_ += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\"{}>{}</text>\n", pixels(x), pixels(y),
                        anchor, more, escaped(words));
  }

  void draw_legend() {
    std::set<size_t> used;
    for (const DrawnLane& lane : lanes_) {
      for (const Box& box : lane.boxes) used.insert(index_of(box.category));
    }
    double x = x_of(0);
    const double y = head() - kRow;
    for (const size_t index : used) {
      out_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", pixels(x),
                          pixels(y), colours()[index].colour);
      const std::string& name = colours()[index].category;
      text(x + 16, y + 10, "start", name);
      x += 16 + static_cast<double>(name.size()) * kLetter + 14;
    }
  }

  void draw_lane(const DrawnLane& lane) {
    out_ +=
        fmt::format("<rect class=\"lane\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#f4f4f4\"/>\n",
                    pixels(x_of(0)), pixels(lane.top), pixels(kWidth), pixels(lane.height));
    const std::string name =
        caption_.rank.empty() ? lane.name : fmt::format("{} {} {}", caption_.rank, lane.rank, lane.name);
    text(x_of(0) - 8, lane.top + lane.height / 2 + 4, "end", name);
    const double thinnest = thinnest_of(lane);
    for (const Box& box : lane.boxes) draw_box(box, lane, thinnest);
  }

  // Thin boxes are widened until they are seen, unless a lane has so many that its share of colour would be
  // wrong.
  double thinnest_of(const DrawnLane& lane) const {
    double added = 0;
    for (const Box& box : lane.boxes) added += std::max(0.0, kSeen - (x_of(box.end) - x_of(box.start)));
    return added < kWidth / 100 ? kSeen : 0;
  }

  void draw_box(const Box& box, const DrawnLane& lane, double thinnest) {
    const double height = lane.height * box.height, y = lane.top + lane.height * box.top;
    const double width = std::max(thinnest, x_of(box.end) - x_of(box.start));
    const double x = std::min(x_of(box.start), x_of(duration_) - width);
    constexpr double kWide = 3;  // thinner boxes would be all edge
    out_ += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"{}><title>{}: {:.5g} to "
        "{:.5g}</title></rect>\n",
        pixels(x), pixels(y), pixels(width), pixels(height), shaded(colour_of(box.category), box.shade),
        std::min(width, height) < kWide ? "" : " class=\"edge\"", escaped(box.what),
        box.start * caption_.of_one, box.end * caption_.of_one);
    draw_label(box, x, width, y, lane);
  }

  // In the middle of its box; if that is low for what it waits, above it, where the lane has room.
  void draw_label(const Box& box, double x, double width, double y, const DrawnLane& lane) {
    constexpr double kTall = 12;
    const double bottom = y + lane.height * box.height, height = std::max(kTall, bottom - y);
    const bool alone = box.top + box.height > 0.99;
    if (lane.height < kTall || (bottom - y < kTall && !alone)) return;
    const std::string number = box.microbatch < 0 ? "" : fmt::format("{}", box.microbatch);
    for (const std::string& words : {box.label, number}) {
      if (words.empty() || width < static_cast<double>(words.size()) * kLetter + 2) continue;
      text(x + width / 2, bottom - height / 2 + 4, "middle", words);
      break;
    }
  }

  // About ten marks at 1, 2 or 5 times a power of ten.
  void draw_axis(double top) {
    const double duration = duration_ * caption_.of_one;
    if (duration <= 0) return;
    const double power = std::pow(10, std::floor(std::log10(duration / 10)));
    double step = power;
    for (const double factor : {2.0, 5.0, 10.0}) {
      if (duration / step > 12) step = power * factor;
    }
    for (int i = 0; i * step <= duration * (1 + 1e-9); ++i) {
      const double x = x_of(i * step / caption_.of_one);
      out_ += fmt::format("<line x1=\"{0}\" x2=\"{0}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#808080\"/>\n",
                          pixels(x), pixels(top), pixels(top + 5));
      text(x, top + 18, "middle", fmt::format("{:g}", i * step));
    }
    text(x_of(0) - 8, top + 18, "end", caption_.unit);
  }

  const Caption& caption_;
  std::vector<DrawnLane> lanes_;
  double duration_ = 0;
  double bottom_ = 0;  // of the lowest lane
  std::string out_;
};

}  // namespace

Caption in_unit_for(double seconds) {
  Caption out;
  for (const auto& [unit, of_one] : {std::pair{"s", 1.0}, {"ms", 1e3}, {"\u00b5s", 1e6}, {"ns", 1e9}}) {
    out.unit = unit;
    out.of_one = of_one;
    if (seconds * of_one >= 1) break;
  }
  return out;
}

std::string colour_of(const std::string& category) { return colours()[index_of(category)].colour; }

std::string svg_of(const std::vector<Span>& spans, const Caption& caption) {
  return Picture(spans, caption).draw();
}

}  // namespace tenon
