#include "base/json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace tenon {
namespace {

constexpr size_t kMaxDepth = 64;

// Watches keys while the document is built: nlohmann keeps the last of two equal keys, we refuse.
class KeyGuard {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > static_cast<int>(kMaxDepth)) too_deep_ = true;
    if (event == Json::parse_event_t::object_start) seen_.emplace_back();
    if (event == Json::parse_event_t::object_end && !seen_.empty()) seen_.pop_back();
    if (event == Json::parse_event_t::key && !seen_.empty()) {
      const auto key = parsed.get<std::string>();
      if (!seen_.back().insert(key).second && duplicate_.empty()) duplicate_ = key;
    }
    return true;
  }
  bool too_deep() const { return too_deep_; }
  const std::string& duplicate() const { return duplicate_; }

 private:
  std::vector<std::set<std::string>> seen_;
  std::string duplicate_;
  bool too_deep_ = false;
};

}  // namespace

std::string without_name(std::string_view message) {
  const size_t name = message.starts_with('[') ? message.find("] ") : std::string_view::npos;
  if (name != std::string_view::npos) message.remove_prefix(name + 2);
  constexpr std::string_view kParsing = "parse error at ";
  if (message.starts_with(kParsing)) message.remove_prefix(kParsing.size());
  return std::string(message);
}

Result<Json> parse_json(const std::string& text, const std::string& place) {
  KeyGuard guard;
  try {
    Json document = Json::parse(text, [&guard](int depth, Json::parse_event_t event, Json& parsed) {
      return guard(depth, event, parsed);
    });
    if (guard.too_deep()) return Error{"R010", "JSON nested deeper than 64", place, "", TENON_E_ARGUMENT};
    if (!guard.duplicate().empty()) {
      return Error{"R010", "key '" + guard.duplicate() + "' stands twice in one object", place, "",
                   TENON_E_ARGUMENT};
    }
    return document;
  } catch (const Json::exception& e) {
    return Error{"R010", "not valid JSON: " + without_name(e.what()), place, "", TENON_E_ARGUMENT};
  }
}

std::string canonical(const Json& document) { return document.dump(); }

std::string printable(const Json& document) {
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tenon
