#include "plan/show/lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace tenon {
namespace {

using Spans = std::vector<const Span*>;

// Spans that overlap, directly or through others, by start.
std::vector<Spans> clusters_of(const Lane& lane) {
  std::vector<Spans> out;
  double end = 0;
  for (const Span* span : lane.spans) {
    if (span->end <= span->start) continue;
    if (out.empty() || span->start >= end) out.emplace_back();
    end = out.back().empty() ? span->end : std::max(end, span->end);
    out.back().push_back(span);
  }
  return out;
}

Box box_of(const Span& span) {
  Box out;
  out.start = span.start;
  out.end = span.end;
  out.category = span.category;
  out.shade = span.shade;
  out.label = span.label;
  out.microbatch = span.microbatch;
  out.what = span.label.empty() ? span.category : span.label;
  if (span.microbatch >= 0) out.what += fmt::format(" (microbatch {})", span.microbatch);
  return out;
}

// A cluster cut where its number of spans changes: each has an equal part of the height, by start from above.
std::vector<Box> boxes_of_cluster(const Spans& spans) {
  if (spans.size() == 1) return {box_of(*spans[0])};
  std::vector<double> edges;
  for (const Span* span : spans) edges.insert(edges.end(), {span->start, span->end});
  std::ranges::sort(edges);
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  std::vector<Box> out;
  std::map<const Span*, size_t> latest;  // box of a span
  Spans active;
  auto next = spans.begin();
  for (size_t i = 0; i + 1 < edges.size(); ++i) {
    std::erase_if(active, [&](const Span* span) { return span->end <= edges[i]; });
    for (; next != spans.end() && (*next)->start <= edges[i]; ++next) active.push_back(*next);
    const double height = 1.0 / static_cast<double>(active.size());
    for (size_t at = 0; at < active.size(); ++at) {
      const double top = height * static_cast<double>(at);
      const auto before = latest.find(active[at]);
      if (before != latest.end() && out[before->second].top == top && out[before->second].height == height) {
        out[before->second].end = edges[i + 1];
        continue;
      }
      latest[active[at]] = out.size();
      Box& box = out.emplace_back(box_of(*active[at]));
      box.start = edges[i];
      box.end = edges[i + 1];
      box.top = top;
      box.height = height;
    }
  }
  return out;
}

double end_of(const std::vector<Box>& boxes) { return std::ranges::max(boxes, {}, &Box::end).end; }

// Boxes too thin to be seen, neighbours: what each category has of their time, stacked from below.
class Cell {
 public:
  bool empty() const { return boxes_.empty(); }
  double length() const { return end_ - boxes_.front().start; }
  double end() const { return end_; }
  void add(const std::vector<Box>& boxes) {
    boxes_.insert(boxes_.end(), boxes.begin(), boxes.end());
    end_ = std::max(end_, end_of(boxes));
  }
  void close(std::vector<Box>& out) {
    if (boxes_.size() == 1) {
      out.push_back(boxes_[0]);
    } else if (!boxes_.empty()) {
      std::map<std::pair<std::string, int>, double> area;  // by category and shade
      for (const Box& box : boxes_) area[{box.category, box.shade}] += (box.end - box.start) * box.height;
      double bottom = 1;
      for (const auto& [kind, of] : area) {
        Box box;
        box.start = boxes_.front().start;
        box.end = end_;
        box.height = of / length();
        box.top = bottom -= box.height;
        box.category = kind.first;
        box.shade = kind.second;
        box.what = fmt::format("{}, {:.0f}% of the time", kind.first, 100 * box.height);
        out.push_back(std::move(box));
      }
    }
    *this = Cell();
  }

 private:
  std::vector<Box> boxes_;
  double end_ = 0;
};

// Spans alike, one behind the other, that overlap no others.
struct Run {
  const Span* first = nullptr;  // null: none
  double end = 0, busy = 0;

  bool takes(const Span& span, double join) const {
    return first != nullptr && span.start < end + join &&
           std::tie(first->label, first->category, first->microbatch, first->shade) ==
               std::tie(span.label, span.category, span.microbatch, span.shade);
  }
  void add(const Span& span) {
    if (first == nullptr) first = &span;
    end = span.end;
    busy += span.end - span.start;
  }
  Box box() const {
    Box out = box_of(*first);
    out.end = end;
    out.height = std::min(1.0, busy / (end - first->start));
    out.top = 1 - out.height;
    if (out.height < 0.995) out.what += fmt::format(", {:.0f}% of the time", 100 * out.height);
    return out;
  }
};

// Takes clusters in order.
class Folder {
 public:
  explicit Folder(const Detail& detail) : detail_(detail) {}

  void add(const Spans& cluster) {
    if (cluster.size() > 1 || !run_.takes(*cluster[0], detail_.join)) close_run();
    if (cluster.size() > 1)
      put(boxes_of_cluster(cluster));
    else
      run_.add(*cluster[0]);
  }
  std::vector<Box> finish() {
    close_run();
    cell_.close(out_);
    return std::move(out_);
  }

 private:
  void close_run() {
    if (run_.first != nullptr) put({run_.box()});
    run_ = Run();
  }
  void put(const std::vector<Box>& boxes) {
    const double start = boxes.front().start;
    const bool thin = end_of(boxes) - start < detail_.thin;
    if (!cell_.empty() && (!thin || start >= cell_.end() + detail_.thin)) cell_.close(out_);
    if (!thin) {
      out_.insert(out_.end(), boxes.begin(), boxes.end());
      return;
    }
    cell_.add(boxes);
    if (cell_.length() >= detail_.cell) cell_.close(out_);
  }

  const Detail& detail_;
  Run run_;
  Cell cell_;
  std::vector<Box> out_;
};

}  // namespace

std::vector<Lane> lanes_of(const std::vector<Span>& spans) {
  std::vector<Lane> lanes;
  std::map<std::pair<int, std::string>, size_t> index;
  for (const Span& span : spans) {
    const auto [at, added] = index.try_emplace({span.rank, span.lane}, lanes.size());
    if (added) lanes.push_back({span.rank, span.lane, {}});
    lanes[at->second].spans.push_back(&span);
  }
  std::ranges::stable_sort(lanes, {}, &Lane::rank);
  for (Lane& lane : lanes)
    std::ranges::stable_sort(lane.spans, {}, [](const Span* span) { return span->start; });
  return lanes;
}

std::vector<Box> boxes_of(const Lane& lane, const Detail& detail) {
  Folder folder(detail);
  for (const Spans& cluster : clusters_of(lane)) folder.add(cluster);
  return folder.finish();
}

}  // namespace tenon
