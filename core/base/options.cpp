#include "base/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/struct_size.h"
#include "base/text.h"
#include "tenon_sdk/suggest.hpp"

namespace tenon {

struct OptionValues::Storage {
  std::deque<std::string> strings;             // a deque never moves what it holds
  std::deque<std::vector<const char*>> lists;  // their elements lie in `strings`
  std::vector<tenon_option> options;

  const char* keep(std::string text) { return strings.emplace_back(std::move(text)).c_str(); }
};

OptionValues::OptionValues() : storage_(std::make_unique<Storage>()) {}
OptionValues::OptionValues(OptionValues&&) noexcept = default;
OptionValues& OptionValues::operator=(OptionValues&&) noexcept = default;
OptionValues::~OptionValues() = default;

const tenon_option* OptionValues::data() const { return storage_->options.data(); }
uint32_t OptionValues::size() const { return static_cast<uint32_t>(storage_->options.size()); }

const tenon_option* OptionValues::find(std::string_view key) const {
  for (const tenon_option& option : storage_->options) {
    if (key == option.key) return &option;
  }
  return nullptr;
}

namespace {

constexpr const char* kKindNames[] = {"boolean", "integer", "number", "string", "list of strings"};
constexpr const char* kKindArticles[] = {"a boolean", "an integer", "a number", "a string",
                                         "a list of strings"};

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string shown(const Json& value) {
  constexpr size_t kMax = 80;
  // Bytes that are not UTF-8 must not make the error message itself fail.
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kMax) text = text.substr(0, kMax) + "...";
  return text;
}

std::string json_kind(const Json& value) {
  if (value.is_number_float()) return "number " + shown(value);
  if (value.is_number()) return "integer " + shown(value);
  if (value.is_null()) return "null";
  return std::string(value.type_name()) + " " + shown(value);
}

bool has_limits(const tenon_option_decl& decl) { return decl.min <= decl.max; }

// "from 0 to 1", "at least 0" or "at most 9"; "" without limits.
std::string limits(const tenon_option_decl& decl) {
  if (!has_limits(decl) || (std::isinf(decl.min) && std::isinf(decl.max))) return "";
  if (std::isinf(decl.max)) return fmt::format("at least {}", decl.min);
  if (std::isinf(decl.min)) return fmt::format("at most {}", decl.max);
  return fmt::format("from {} to {}", decl.min, decl.max);
}

// The default as JSON, so that it passes through the very checks that a given value does.
std::optional<Json> parse_fallback(const tenon_option_decl& decl) {
  const std::string text = decl.fallback;
  const char* const end = text.data() + text.size();
  switch (decl.kind) {
    case TENON_BOOL:
      if (text == "true" || text == "false") return Json(text == "true");
      return std::nullopt;
    case TENON_INT: {
      int64_t value = 0;
      const auto read = std::from_chars(text.data(), end, value);
      if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
      return Json(value);
    }
    case TENON_FLOAT: {
      double value = 0;
      const auto read = std::from_chars(text.data(), end, value);
      if (read.ec != std::errc() || read.ptr != end || !std::isfinite(value)) return std::nullopt;
      return Json(value);
    }
    case TENON_STRING: return Json(text);
    case TENON_STRINGS: return Json(split(text, ','));
    default: return std::nullopt;
  }
}

bool is_of_kind(const Json& value, uint32_t kind) {
  switch (kind) {
    case TENON_BOOL: return value.is_boolean();
    case TENON_INT: return value.is_number_integer();
    case TENON_FLOAT: return value.is_number();
    case TENON_STRING: return value.is_string();
    case TENON_STRINGS:
      if (!value.is_array()) return false;
      return std::all_of(value.begin(), value.end(), [](const Json& item) { return item.is_string(); });
    default: return false;
  }
}

bool holds_nul(const Json& value) {
  if (value.is_array()) return std::any_of(value.begin(), value.end(), holds_nul);
  return value.is_string() && value.get_ref<const std::string&>().find('\0') != std::string::npos;
}

}  // namespace

std::string kind_name(uint32_t kind) { return kind <= TENON_STRINGS ? kKindNames[kind] : ""; }

std::string json_pointer(const std::string& base, std::string_view token) {
  std::string out = base + "/";
  for (const char c : token) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

// Reads one object of options; a friend of OptionValues, whose storage it fills.
class OptionReader {
 public:
  OptionReader(OptionDecls decls, std::string place, std::string who)
      : decls_(decls), place_(std::move(place)), who_(std::move(who)) {}

  Result<OptionValues> read(const Json& given) {
    if (!given.is_object() && !given.is_null()) {
      return fail("R003", fmt::format("options of {} want an object, got {}", who_, json_kind(given)),
                  place_);
    }
    TENON_CHECK(check_keys(given));
    for (const tenon_option_decl* decl : decls_) TENON_CHECK(read_one(*decl, given));
    return std::move(values_);
  }

  // Checks a value against its declaration and appends it.
  Status append(const tenon_option_decl& decl, const Json& value) {
    TENON_CHECK(check_type(decl, value));
    TENON_CHECK(check_limits(decl, value));
    TENON_CHECK(check_choices(decl, value));
    store(decl, value);
    return {};
  }

 private:
  Status check_keys(const Json& given) const {
    if (given.is_null()) return {};
    std::vector<std::string> names;
    for (const tenon_option_decl* decl : decls_) names.emplace_back(decl->name);
    for (const auto& [key, unused] : given.items()) {
      if (std::find(names.begin(), names.end(), key) != names.end()) continue;
      std::string fix = sdk::did_you_mean(key, names);
      if (fix.empty()) {
        fix = names.empty() ? who_ + " has no options"
                            : fmt::format("options of {}: {}", who_, fmt::join(names, ", "));
      }
      return fail("R002", fmt::format("unknown option '{}' for {}", key, who_), json_pointer(place_, key),
                  fix);
    }
    return {};
  }

  Status read_one(const tenon_option_decl& decl, const Json& given) {
    if (given.is_object() && given.contains(decl.name)) return append(decl, given.at(decl.name));
    if (decl.fallback == nullptr) {
      return fail("R004", fmt::format("option '{}' of {} is missing", decl.name, who_), place_,
                  fmt::format("set {} to {}: {}", decl.name, wanted(decl), doc(decl)));
    }
    const std::optional<Json> value = parse_fallback(decl);
    if (!value) return at(decl, "R003", fmt::format("the default '{}' of {}", decl.fallback, who_), "");
    return append(decl, *value);
  }

  Status check_type(const tenon_option_decl& decl, const Json& value) const {
    if (!is_of_kind(value, decl.kind)) return at(decl, "R003", "", json_kind(value));
    if (holds_nul(value)) return at(decl, "R005", "", "a string that holds a NUL character");
    return {};
  }

  Status check_limits(const tenon_option_decl& decl, const Json& value) const {
    if (decl.kind != TENON_INT && decl.kind != TENON_FLOAT) return {};
    const bool too_big = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX};
    if (decl.kind == TENON_INT && too_big) return at(decl, "R005", "", shown(value));
    const double number = value.get<double>();
    // Not `number < min || ...`: a NaN must not pass.
    const bool inside = !has_limits(decl) || (number >= decl.min && number <= decl.max);
    if (!std::isfinite(number) || !inside) return at(decl, "R005", "", shown(value));
    return {};
  }

  Status check_choices(const tenon_option_decl& decl, const Json& value) const {
    if (decl.choices == nullptr || (decl.kind != TENON_STRING && decl.kind != TENON_STRINGS)) return {};
    const std::vector<std::string> choices = split(decl.choices, '|');
    const Json items = value.is_array() ? value : Json::array({value});
    for (const Json& item : items) {
      const auto text = item.get<std::string>();
      if (std::find(choices.begin(), choices.end(), text) != choices.end()) continue;
      return at(decl, "R005", "", shown(item), sdk::did_you_mean(text, choices));
    }
    return {};
  }

  void store(const tenon_option_decl& decl, const Json& value) {
    OptionValues::Storage& storage = *values_.storage_;
    tenon_option option{};
    option.key = storage.keep(decl.name);
    option.kind = decl.kind;
    switch (decl.kind) {
      case TENON_BOOL: option.i = value.get<bool>() ? 1 : 0; break;
      case TENON_INT:
        option.i = value.get<int64_t>();
        option.f = static_cast<double>(option.i);
        break;
      case TENON_FLOAT: option.f = value.get<double>(); break;
      case TENON_STRING: option.s = storage.keep(value.get<std::string>()); break;
      default: {
        std::vector<const char*>& list = storage.lists.emplace_back();
        for (const Json& item : value) list.push_back(storage.keep(item.get<std::string>()));
        option.list = list.data();
        option.count = static_cast<uint32_t>(list.size());
      }
    }
    storage.options.push_back(option);
  }

  // "a number from 0 to 1", "a string, one of: gpu, cpu"
  static std::string wanted(const tenon_option_decl& decl) {
    std::string text = decl.kind <= TENON_STRINGS ? kKindArticles[decl.kind] : "a value of unknown kind";
    const bool number = decl.kind == TENON_INT || decl.kind == TENON_FLOAT;
    if (number && !limits(decl).empty()) text += " " + limits(decl);
    if (decl.choices != nullptr)
      text += fmt::format(", one of: {}", fmt::join(split(decl.choices, '|'), ", "));
    return text;
  }

  static std::string doc(const tenon_option_decl& decl) { return decl.doc == nullptr ? "" : decl.doc; }

  Error at(const tenon_option_decl& decl, const char* code, const std::string& subject,
           const std::string& got, const std::string& fix = "") const {
    const std::string what = subject.empty() ? fmt::format("option '{}' of {}", decl.name, who_) : subject;
    const std::string tail = got.empty() ? "" : ", got " + got;
    return fail(code, fmt::format("{} wants {}{}", what, wanted(decl), tail), json_pointer(place_, decl.name),
                fix);
  }

  static Error fail(const char* code, std::string cause, std::string place, std::string fix = "") {
    return Error{code, std::move(cause), std::move(place), std::move(fix), TENON_E_RECIPE};
  }

  OptionDecls decls_;
  std::string place_;
  std::string who_;
  OptionValues values_;
};

Result<OptionValues> read_options(OptionDecls decls, const Json& given, const std::string& place,
                                  const std::string& who) {
  return OptionReader(decls, place, who).read(given);
}

namespace {

constexpr size_t kMostDeclarations = 1000;

tenon_option_decl whole(const tenon_option_decl& given) {
  tenon_option_decl out{};
  out.struct_size = sizeof out;
  tenon_fill(&out, &given);
  if (!TENON_HAS(&given, tenon_option_decl, max)) out.min = 1, out.max = 0;  // no limits
  return out;
}

// What is wrong with one declaration, "" if nothing is.
std::string flaw(const tenon_option_decl* given, std::set<std::string>& names) {
  if (given == nullptr) return "is NULL";
  if (!is_struct_size(given->struct_size))
    return fmt::format("has struct_size {}, which ends inside a member", given->struct_size);
  if (!TENON_HAS(given, tenon_option_decl, doc)) {
    return fmt::format("has struct_size {}, which leaves no room for name and doc", given->struct_size);
  }
  const tenon_option_decl mine = whole(*given);
  const tenon_option_decl* const decl = &mine;
  if (decl->name == nullptr || *decl->name == '\0') return "has no name";
  if (!is_text(decl->name)) return "has a name that is no text: not UTF-8, or without an end";
  if (decl->doc == nullptr) return fmt::format("'{}' has no doc", decl->name);
  for (const auto& [what, text] :
       {std::pair{"doc", decl->doc}, {"default", decl->fallback}, {"list of choices", decl->choices}}) {
    if (text != nullptr && !is_text(text))
      return fmt::format("'{}' has a {} that is no text: not UTF-8, or without an end", decl->name, what);
  }
  if (!names.insert(decl->name).second) return fmt::format("'{}' is declared twice", decl->name);
  if (decl->kind > TENON_STRINGS) return fmt::format("'{}' has unknown kind {}", decl->name, decl->kind);
  if (decl->fallback == nullptr) return "";
  const std::optional<Json> value = parse_fallback(*decl);
  if (!value) {
    return fmt::format("'{}' has default '{}', which is not {}", decl->name, decl->fallback,
                       kKindArticles[decl->kind]);
  }
  const Status status = OptionReader({}, "", "the plugin").append(*decl, *value);
  return status.ok()
             ? ""
             : fmt::format("'{}' has default '{}': {}", decl->name, decl->fallback, status.error().cause);
}

std::string markdown_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string markdown_default(const tenon_option_decl& decl) {
  if (decl.fallback == nullptr) return "required";
  const std::string text = markdown_text(decl.fallback);
  if (decl.kind == TENON_STRING) return "`\"" + text + "\"`";
  if (decl.kind == TENON_STRINGS && text.empty()) return "empty";
  return "`" + text + "`";
}

std::string markdown_allowed(const tenon_option_decl& decl) {
  if (decl.choices != nullptr) return fmt::format("`{}`", fmt::join(split(decl.choices, '|'), "`, `"));
  return decl.kind == TENON_INT || decl.kind == TENON_FLOAT ? limits(decl) : "";
}

}  // namespace

Declarations::Declarations(OptionDecls given) {
  std::vector<tenon_option_decl> decls;
  for (const tenon_option_decl* one : given) decls.push_back(whole(*one));
  decls_ = std::make_shared<const std::vector<tenon_option_decl>>(std::move(decls));
  for (const tenon_option_decl& one : *decls_) pointers_.push_back(&one);
}

Status check_declarations(OptionDecls decls, const std::string& who) {
  if (decls.size() > kMostDeclarations) {
    return Error{"A005", fmt::format("{} option declarations, more than {}", decls.size(), kMostDeclarations),
                 who, "correct the plugin's options", TENON_E_ARGUMENT};
  }
  std::set<std::string> names;
  for (size_t i = 0; i < decls.size(); ++i) {
    const std::string what = flaw(decls[i], names);
    if (what.empty()) continue;
    return Error{"A005", fmt::format("option declaration {} {}", i, what), who,
                 "correct the plugin's options", TENON_E_ARGUMENT};
  }
  return {};
}

std::string options_markdown(OptionDecls decls) {
  std::string out;
  for (const tenon_option_decl* decl : decls) {
    out += fmt::format("| `{}` | {} | {} | {} | {} |\n", decl->name, kind_name(decl->kind),
                       markdown_default(*decl), markdown_allowed(*decl),
                       markdown_text(decl->doc == nullptr ? "" : decl->doc));
  }
  return out;
}

}  // namespace tenon
