#include "host/recipe/evaluate.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>

namespace tenon {
namespace {

constexpr size_t kMaxFile = size_t{64} << 20;

Error limit(const RecipeRequest& request, const std::string& cause, const std::string& fix) {
  return Error{"R014", cause, request.path, fix, TENON_E_RECIPE};
}

Error helper_failed(const RecipeRequest& request, const std::string& cause) {
  return Error{"R017", cause, request.path, "", TENON_E_INTERNAL};
}

std::string who_of(const RecipeRequest& request) {
  return "the front end " + (request.id.empty() ? request.plugin : request.id + " (" + request.plugin + ")");
}

Error incomplete(const RecipeRequest& request) {
  return helper_failed(request, who_of(request) + ": its answer is incomplete");
}

Result<std::string> read_text(const std::string& path) {
  struct stat info {};
  const auto fail = [&path](const std::string& why) {
    return Error{"R015", "cannot read '" + path + "': " + why, path, "", TENON_E_IO};
  };
  if (stat(path.c_str(), &info) != 0) return fail(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return fail("it is not a regular file");
  if (static_cast<size_t>(info.st_size) > kMaxFile) return fail("it is larger than 64 MiB");
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return fail("reading failed");
  return text.str();
}

// The byte at which the code point number `column` (from 1) begins.
size_t byte_of_column(const std::string& line, int64_t column) {
  size_t at = 0;
  for (int64_t c = 1; c < column && at < line.size(); ++c) {
    ++at;
    while (at < line.size() && (static_cast<unsigned char>(line[at]) & 0xC0) == 0x80) ++at;
  }
  return at;
}

// The line with carets under the word that begins at the column:
//    |
// 28 |     wieght_decay = 0.1,
//    |     ^^^^^^^^^^^^
std::string excerpt(const std::string& line, int64_t number, int64_t column) {
  const std::string gutter = std::to_string(number) + " | ";
  const std::string blank = std::string(gutter.size() - 2, ' ') + "|";
  std::string out = blank + "\n" + gutter + line;
  if (column < 1) return out;
  const size_t begin = byte_of_column(line, column);
  size_t end = begin;
  while (end < line.size() && (std::isalnum(static_cast<unsigned char>(line[end])) != 0 || line[end] == '_'))
    ++end;
  std::string under;
  for (size_t i = 0; i < begin; ++i) {
    if (line[i] == '\t')
      under += '\t';
    else if ((static_cast<unsigned char>(line[i]) & 0xC0) != 0x80)
      under += ' ';
  }
  return out + "\n" + blank + " " + under + std::string(std::max<size_t>(1, end - begin), '^');
}

std::string shown_place(const std::string& file, int64_t line, int64_t column, const std::string& source) {
  if (line < 1) return file;
  std::string out = file + ":" + std::to_string(line);
  if (column > 0) out += ":" + std::to_string(column);
  return source.empty() ? out : out + "\n" + excerpt(source, line, column);
}

std::string text_at(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

int64_t number_at(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number_integer() ? it->get<int64_t>() : 0;
}

// "R002": of the errors of recipes.
bool is_recipe_code(const std::string& code) {
  return code.size() == 4 && code[0] == 'R' &&
         std::all_of(code.begin() + 1, code.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

Error reported(const RecipeRequest& request, const Json& error) {
  const std::string code = text_at(error, "code"), message = text_at(error, "message");
  if (!is_recipe_code(code) || message.empty()) return incomplete(request);
  return Error{code, message,
               shown_place(text_at(error, "file"), number_at(error, "line"), number_at(error, "column"),
                           text_at(error, "source")),
               text_at(error, "hint"), TENON_E_RECIPE};
}

Result<ResolvedRecipe> read_document(const RecipeRequest& request, const ChildEnd& end) {
  auto parsed = parse_json(end.output, request.path);
  if (!parsed.ok())
    return helper_failed(request, who_of(request) + ": its answer is damaged: " + parsed.error().cause);
  Json& document = *parsed;
  if (document.is_object() && document.contains("error") && document["error"].is_object()) {
    return reported(request, document["error"]);
  }
  const bool complete = document.is_object() && document.contains("recipe") &&
                        document["recipe"].is_object() && document.contains("provenance") &&
                        document["provenance"].is_object() && document.contains("parameters") &&
                        document["parameters"].is_array();
  if (!complete) return incomplete(request);
  ResolvedRecipe out;
  out.recipe = std::move(document["recipe"]);
  out.parameters = std::move(document["parameters"]);
  for (const auto& [pointer, place] : document["provenance"].items()) {
    if (!place.is_string()) return incomplete(request);
    out.provenance[pointer] = place.get<std::string>();
  }
  out.messages = end.messages;
  return out;
}

// What a helper that fails says last is why; before it stands what the front end has logged.
std::string last_line(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return std::string(text.substr(text.rfind('\n') + 1));
}

// What the front end was in when the helper ended, from the newlines that it wrote
// (core/recipe_helper/main.cpp): "" where it came to nothing of it.
std::string last_call(const std::string& output) {
  constexpr const char* kCalls[] = {"", "the loading of its file", "init", "get_interface", "evaluate"};
  const size_t entered = std::min(output.find_first_not_of('\n'), output.size());
  return entered < output.size() ? "evaluate or deinit" : kCalls[std::min(entered, std::size(kCalls) - 1)];
}

bool is_blank(const std::string& output) { return output.find_first_not_of('\n') == std::string::npos; }

// Why there is no document, from how the helper ended.
Error explain(const RecipeRequest& request, const ChildEnd& end) {
  using Cause = ChildEnd::Cause;
  const std::string who = who_of(request), call = last_call(end.output);
  const std::string where = call.empty() ? " before its file was loaded" : " in " + call;
  const std::string last = last_line(end.messages), said = last.empty() ? "" : ": " + last;
  switch (end.cause) {
    case Cause::too_slow:
      return limit(request,
                   "the recipe did not end within " + std::to_string(request.limits.wall.count()) + " ms",
                   "");
    case Cause::too_much:
      return limit(request,
                   "the resolved recipe is larger than " + std::to_string(request.limits.output) + " bytes",
                   "use nn.blocks for repeated layers");
    case Cause::signalled:
      if (end.status == SIGXCPU || end.status == SIGKILL) {
        return limit(request, "the recipe used up its processor time",
                     "a search with several '.-' or '.*' in its pattern can take for ever");
      }
      return helper_failed(request,
                           who + " crashed" + where + " (signal " + std::to_string(end.status) + ")" + said);
    case Cause::exited:
      return helper_failed(request, end.status == 0 ? who + " ended" + where + " without an answer" + said
                                                    : who + " failed" + where + " (exit " +
                                                          std::to_string(end.status) + ")" + said);
    default: return helper_failed(request, who + " ended without an answer" + said);
  }
}

Result<ResolvedRecipe> read_resolved(const RecipeRequest& request) {
  if (!request.overrides.empty()) {
    const std::string key = request.overrides[0].substr(0, request.overrides[0].find('='));
    return Error{"R013", "unknown parameter '" + key + "' on the command line", request.path,
                 "a resolved recipe (.json) has no parameters", TENON_E_RECIPE};
  }
  TENON_TRY(const std::string text, read_text(request.path));
  ResolvedRecipe out;
  TENON_TRY(out.recipe, parse_json(text, request.path));
  return out;
}

Status check_override(const RecipeRequest& request, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals != std::string::npos && equals > 0 && text.find('\0') == std::string::npos) return {};
  return Error{"R013", "'" + text + "' on the command line is not key=value", request.path, "",
               TENON_E_RECIPE};
}

}  // namespace

Result<ResolvedRecipe> evaluate_recipe(const RecipeRequest& request) {
  if (request.path.ends_with(".json")) return read_resolved(request);
  for (const std::string& text : request.overrides) TENON_CHECK(check_override(request, text));
  std::vector<std::string> argv{request.helper, request.plugin, request.library, request.path};
  argv.insert(argv.end(), request.overrides.begin(), request.overrides.end());
  TENON_TRY(const ChildEnd end, run_child(argv, request.limits));
  // What counts is a whole document, not how the helper was reaped; a killed one never counts.
  const bool ended =
      end.cause == ChildEnd::Cause::unknown || (end.cause == ChildEnd::Cause::exited && end.status == 0);
  if (!ended || is_blank(end.output)) return explain(request, end);
  return read_document(request, end);
}

std::string place_of(const ResolvedRecipe& recipe, const std::string& pointer) {
  for (std::string at = pointer;; at.resize(at.rfind('/'))) {
    const auto it = recipe.provenance.find(at);
    if (it != recipe.provenance.end()) return it->second;
    if (at.rfind('/') == std::string::npos) return "";
  }
}

namespace {

// A place such as /data/options may be a pointer into the recipe or a path of this machine.
bool is_pointer(const std::string& place, const ResolvedRecipe& recipe) {
  if (!place.starts_with('/')) return false;
  if (recipe.provenance.contains(place)) return true;
  if (!recipe.recipe.contains(place.substr(1, place.find('/', 1) - 1))) return false;
  struct stat info {};
  return stat(place.c_str(), &info) != 0;
}

}  // namespace

Error locate(Error error, const ResolvedRecipe& recipe) {
  if (!is_pointer(error.place, recipe)) return error;
  const std::string place = place_of(recipe, error.place);
  const size_t second = place.rfind(':');
  const size_t first =
      second == std::string::npos || second == 0 ? std::string::npos : place.rfind(':', second - 1);
  if (first == std::string::npos) return error;
  const std::string file = place.substr(0, first);
  const int64_t line = std::atoll(place.c_str() + first + 1), column = std::atoll(place.c_str() + second + 1);
  std::string source;
  if (const auto text = read_text(file); text.ok()) {
    std::istringstream lines(*text);
    for (int64_t i = 0; i < line && std::getline(lines, source); ++i) {
    }
    if (source.ends_with('\r')) source.pop_back();
  }
  error.place = shown_place(file, line, column, source);
  return error;
}

}  // namespace tenon
