#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "plan/show/lanes.h"

namespace tenon {

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
