#include "graph/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <set>

#include "graph/ops.h"
#include "tenon_sdk/suggest.hpp"

namespace tenon {
namespace {

Error mistake(const char* code, const std::string& pointer, const std::string& cause,
              const std::string& fix) {
  return Error{code, cause, pointer, fix, TENON_E_RECIPE};
}
Error wrong_type(const std::string& pointer, const std::string& cause) {
  return mistake("R003", pointer, cause, "");
}
// Of the right type, and still not one that is allowed.
Error wrong_value(const std::string& pointer, const std::string& cause, const std::string& fix = "") {
  return mistake("R005", pointer, cause, fix);
}

// JSON's integers reach 2^64; one above int64 would come out negative.
std::optional<int64_t> as_int64(const Json& number) {
  if (number.is_number_unsigned() && number.get<uint64_t>() > uint64_t{INT64_MAX}) return std::nullopt;
  return number.get<int64_t>();
}

// Reads an object key by key; remembers the first mistake; finish() refuses what nobody asked for.
class Fields {
 public:
  Fields(const Json& object, std::string pointer) : object_(object), pointer_(std::move(pointer)) {
    if (!object.is_object())
      fail(wrong_type(pointer_, "expected an object, got " + std::string(object.type_name())));
  }

  const Json* find(const char* key, bool required = true) {
    seen_.insert(key);
    if (!object_.is_object()) return nullptr;
    const auto it = object_.find(key);
    if (it != object_.end()) return &*it;
    if (required) fail(mistake("R004", pointer_, "missing key '" + std::string(key) + "'", ""));
    return nullptr;
  }
  void text(const char* key, std::string& out) {
    if (const Json* v = find(key)) {
      if (!v->is_string()) return mismatch(key, "a string", *v);
      out = v->get<std::string>();
    }
  }
  void integer(const char* key, int64_t& out, int64_t min, int64_t max = INT64_MAX) {
    if (const Json* v = find(key)) {
      if (!v->is_number_integer()) return mismatch(key, "an integer", *v);
      const auto whole = as_int64(*v);
      out = whole.value_or(max);
      if (out < min)
        fail(wrong_value(at(key),
                         std::string(key) + " = " + v->dump() + ": must be at least " + std::to_string(min)));
      if (!whole || out > max)
        fail(wrong_value(at(key), fmt::format("{} = {}: must be at most {}", key, v->dump(), max)));
    }
  }
  void number(const char* key, double& out, double min, bool required = true) {
    if (const Json* v = find(key, required)) {
      if (!v->is_number()) return mismatch(key, "a number", *v);
      out = v->get<double>();
      if (!(out >= min)) {
        fail(wrong_value(at(key), fmt::format("{} = {}: must be at least {}", key, v->dump(), min)));
      }
    }
  }
  // May be left out.
  void boolean(const char* key, bool& out) {
    if (const Json* v = find(key, false)) {
      if (!v->is_boolean()) return mismatch(key, "true or false", *v);
      out = v->get<bool>();
    }
  }
  const Json* array(const char* key, bool required = true) {
    const Json* v = find(key, required);
    if (v != nullptr && !v->is_array()) {
      mismatch(key, "an array", *v);
      return nullptr;
    }
    return v;
  }
  void check(Status status) {
    if (!status.ok()) fail(std::move(status).error());
  }
  void fail(Error error) {
    if (status_.ok()) status_ = std::move(error);
  }
  std::string at(const std::string& key) const { return pointer_ + "/" + key; }
  Status finish() {
    if (status_.ok() && object_.is_object()) {
      for (const auto& [key, value] : object_.items()) {
        if (!seen_.contains(key)) {
          return Error{"R002", "unknown key '" + key + "'", at(key), known(), TENON_E_RECIPE};
        }
      }
    }
    return std::move(status_);
  }

 private:
  void mismatch(const std::string& key, const std::string& expected, const Json& got) {
    fail(wrong_type(at(key), key + ": expected " + expected + ", got " + got.dump().substr(0, 60)));
  }
  std::string known() const {
    std::string out = "known keys:";
    for (const std::string& key : seen_) out += " " + key;
    return out;
  }
  const Json& object_;
  std::string pointer_;
  std::set<std::string> seen_;
  Status status_;
};

Result<Init> read_init(const Json& json, const std::string& pointer) {
  Fields fields(json, pointer);
  std::string kind;
  fields.text("kind", kind);
  Init init;
  if (kind == "normal") {
    init.kind = Init::Kind::normal;
    fields.number("std", init.scale, 0);
  } else if (kind == "uniform") {
    init.kind = Init::Kind::uniform;
    fields.number("bound", init.scale, 0);
  } else if (kind == "ones") {
    init.kind = Init::Kind::ones;
  } else if (kind != "zeros") {
    fields.fail(
        wrong_value(pointer, "init kind '" + kind + "' is not known", "normal, uniform, zeros or ones"));
  }
  TENON_CHECK(fields.finish());
  return init;
}

bool is_named_size(const Json& pair) {
  return pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_number_integer();
}

Result<Dims> read_dims(const Json& json, const std::string& pointer) {
  Dims dims;
  for (const Json& dim : json) {
    const std::string cause = "dims are pairs [name, size >= 1], got " + dim.dump();
    if (!is_named_size(dim)) return wrong_type(pointer, cause);
    const auto size = as_int64(dim[1]);
    if (!size || *size < 1) return wrong_value(pointer, cause);
    dims.push_back({dim[0].get<std::string>(), *size});
  }
  if (!fits(dims))
    return wrong_value(pointer,
                       fmt::format("a tensor {} has more than {} elements", text(dims), kMaxElements));
  return dims;
}

Result<std::vector<ParamSpec>> read_params(const Json* list, const std::string& pointer) {
  std::vector<ParamSpec> out;
  if (list == nullptr) return out;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string at = pointer + "/" + std::to_string(i);
    Fields fields((*list)[i], at);
    ParamSpec param;
    fields.text("name", param.name);
    if (const Json* dims = fields.array("dims")) {
      TENON_TRY(param.dims, read_dims(*dims, at + "/dims"));
    }
    if (const Json* init = fields.find("init")) {
      TENON_TRY(param.init, read_init(*init, at + "/init"));
    }
    TENON_CHECK(fields.finish());
    out.push_back(std::move(param));
  }
  return out;
}

Result<std::vector<std::string>> read_names(const Json* list, const std::string& pointer) {
  std::vector<std::string> out;
  if (list == nullptr) return out;
  for (const Json& name : *list) {
    if (!name.is_string()) return wrong_type(pointer, "expected names, got " + name.dump());
    out.push_back(name.get<std::string>());
  }
  return out;
}

Result<Attrs> read_attrs(const Json* object, const std::string& pointer) {
  Attrs attrs;
  if (object == nullptr) return attrs;
  if (!object->is_object()) {
    return wrong_type(pointer, "attrs: expected an object, got " + object->dump().substr(0, 60));
  }
  for (const auto& [key, value] : object->items()) {
    if (value.is_number_integer() && as_int64(value))
      attrs[key] = *as_int64(value);
    else if (value.is_number_integer())
      return wrong_value(pointer + "/" + key,
                         fmt::format("{} = {}: must be at most {}", key, value.dump(), INT64_MAX));
    else if (value.is_number())
      attrs[key] = value.get<double>();
    else
      return wrong_type(pointer + "/" + key, "an attribute is a number, got " + value.dump());
  }
  return attrs;
}

Result<std::vector<OpSpec>> read_ops(const Json* list, const std::string& pointer, bool nested);

// How many ops belong to each layer of a round.
Result<std::vector<int64_t>> read_layers(const Json* list, size_t ops, const std::string& pointer) {
  std::vector<int64_t> out;
  if (list == nullptr) return out;
  int64_t left = static_cast<int64_t>(ops);
  for (const Json& item : *list) {
    const auto count = item.is_number_integer() ? as_int64(item) : std::nullopt;
    if (!count) return wrong_type(pointer, "layers lists numbers of ops, got " + item.dump());
    if (*count < 1 || *count > left) break;
    left -= *count;
    out.push_back(*count);
  }
  if (left == 0 && out.size() == list->size()) return out;
  return wrong_value(
      pointer, fmt::format("layers = {} shares out other than the {} ops of a round", list->dump(), ops),
      "give each layer its number of ops, at least 1");
}

Result<OpSpec> read_repeat(const Json& json, const std::string& pointer) {
  Fields fields(json, pointer);
  auto repeat = std::make_shared<RepeatSpec>();
  fields.integer("repeat", repeat->count, 0);
  std::string index;
  fields.text("index", index);
  if (index != "i") fields.fail(wrong_value(pointer + "/index", "the index is called 'i'"));
  if (const Json* carry = fields.array("carry")) {
    for (const Json& pair : *carry) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
        return wrong_type(pointer + "/carry",
                          "carry lists pairs [name on entry, name on exit], got " + pair.dump());
      }
      repeat->carry.emplace_back(pair[0].get<std::string>(), pair[1].get<std::string>());
    }
  }
  TENON_TRY(repeat->params, read_params(fields.array("params", false), pointer + "/params"));
  TENON_TRY(repeat->ops, read_ops(fields.array("ops"), pointer + "/ops", true));
  TENON_TRY(repeat->layers,
            read_layers(fields.array("layers", false), repeat->ops.size(), pointer + "/layers"));
  TENON_CHECK(fields.finish());
  OpSpec out;
  out.repeat = std::move(repeat);
  out.pointer = pointer;
  return out;
}

Result<std::vector<OpSpec>> read_ops(const Json* list, const std::string& pointer, bool nested) {
  std::vector<OpSpec> out;
  if (list == nullptr) return out;
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& item = (*list)[i];
    const std::string at = pointer + "/" + std::to_string(i);
    if (item.is_object() && item.contains("repeat")) {
      if (nested) return wrong_value(at, "a repeat inside a repeat is not supported", "unroll the inner one");
      TENON_TRY(OpSpec repeat, read_repeat(item, at));
      out.push_back(std::move(repeat));
      continue;
    }
    Fields fields(item, at);
    OpSpec op;
    op.pointer = at;
    fields.text("op", op.kind);
    TENON_TRY(op.in, read_names(fields.array("in"), at + "/in"));
    TENON_TRY(op.out, read_names(fields.array("out"), at + "/out"));
    TENON_TRY(op.attrs, read_attrs(fields.find("attrs", false), at + "/attrs"));
    TENON_CHECK(fields.finish());
    out.push_back(std::move(op));
  }
  return out;
}

Result<ModelSpec> read_model(const Json& json) {
  Fields fields(json, "/model");
  ModelSpec model;
  fields.text("name", model.name);
  fields.text("logits", model.logits);
  TENON_TRY(model.params, read_params(fields.array("params"), "/model/params"));
  TENON_TRY(model.ops, read_ops(fields.array("ops"), "/model/ops", false));
  TENON_CHECK(fields.finish());
  return model;
}

void read_use(Fields& fields, const std::string& pointer, PluginUse& out) {
  fields.text("plugin", out.id);
  out.pointer = pointer + "/options";
  if (const Json* options = fields.find("options", false)) {
    if (!options->is_object())
      fields.fail(wrong_type(out.pointer, "options are an object"));
    else
      out.options = canonical(*options);
  }
}

Result<PluginUse> read_plugin(const Json* json, const std::string& pointer) {
  PluginUse out;
  if (json == nullptr) return out;
  Fields fields(*json, pointer);
  read_use(fields, pointer, out);
  TENON_CHECK(fields.finish());
  return out;
}

Result<std::vector<PluginUse>> read_plugins(const Json* list, const std::string& pointer) {
  std::vector<PluginUse> out;
  if (list == nullptr) return out;
  for (size_t i = 0; i < list->size(); ++i) {
    TENON_TRY(PluginUse use, read_plugin(&(*list)[i], pointer + "/" + std::to_string(i)));
    out.push_back(std::move(use));
  }
  return out;
}

Status check_override(const std::string& kind, const PluginUse& use, const PluginUse& base,
                      const std::string& pointer) {
  const OpDef* def = find_kind(kind);
  if (def == nullptr || def->runner != OpRunner::kernel) {
    std::vector<std::string> known;
    for (const OpDef& row : op_table())
      if (row.runner == OpRunner::kernel) known.emplace_back(row.kind);
    std::string fix = sdk::did_you_mean(kind, known);
    if (fix.empty()) fix = "docs/reference/ops.md lists the kinds";
    return mistake("G003", pointer, "no kernel is of kind '" + kind + "'", fix);
  }
  if (use.id != base.id || use.options != base.options) return {};
  return wrong_value(pointer, fmt::format("'{}' is what runs all other kinds too", use.id),
                     "remove it, or name another plugin or other options");
}

// {"plugin": ..., "options": ..., "overrides": {"gelu": {"plugin": ..., "options": ...}}}.
Status read_kernels(const Json& json, KernelsUse& kernels) {
  Fields fields(json, "/kernels");
  read_use(fields, "/kernels", kernels.base);
  const Json* overrides = fields.find("overrides", false);
  TENON_CHECK(fields.finish());
  if (overrides == nullptr) return {};
  if (!overrides->is_object()) return wrong_type("/kernels/overrides", "overrides are an object");
  for (const auto& [kind, json_use] : overrides->items()) {
    const std::string at = "/kernels/overrides/" + kind;
    TENON_TRY(PluginUse use, read_plugin(&json_use, at));
    TENON_CHECK(check_override(kind, use, kernels.base, at));
    kernels.overrides.emplace(kind, std::move(use));
  }
  return {};
}

Status read_optimizer(const Json& json, Recipe& recipe) {
  Fields fields(json, "/optimizer");
  read_use(fields, "/optimizer", recipe.optimizer);
  fields.number("clip", recipe.clip, 0, false);
  const Json* groups = fields.array("groups", false);
  for (size_t i = 0; groups != nullptr && i < groups->size(); ++i) {
    const std::string at = "/optimizer/groups/" + std::to_string(i);
    Fields group((*groups)[i], at);
    OptimizerGroup out;
    TENON_TRY(out.match, read_names(group.array("match"), at + "/match"));
    Json merged = Json::parse(recipe.optimizer.options);
    if (const Json* options = group.find("options")) {
      if (!options->is_object()) return wrong_type(at + "/options", "options are an object");
      merged.update(*options);
    }
    out.options = canonical(merged);
    out.pointer = at + "/options";
    TENON_CHECK(group.finish());
    recipe.groups.push_back(std::move(out));
  }
  return fields.finish();
}

Status read_lr(const Json& json, LearningRate& lr) {
  Fields fields(json, "/lr");
  std::string kind;
  fields.text("kind", kind);
  if (kind == "constant") {
    fields.number("value", lr.peak, 0);
    lr.floor = lr.peak;
  } else if (kind == "cosine" || kind == "wsd") {
    lr.kind = kind == "wsd" ? LearningRate::Kind::wsd : LearningRate::Kind::cosine;
    fields.number("peak", lr.peak, 0);
    fields.number("floor", lr.floor, 0);
    fields.integer("steps", lr.steps, 1);
    if (kind == "wsd") fields.integer("decay", lr.decay, 0);
  } else {
    fields.fail(
        wrong_value("/lr/kind", "learning rate '" + kind + "' is not known", "constant, cosine or wsd"));
  }
  fields.integer("warmup", lr.warmup, 0);
  return fields.finish();
}

// Names of axes stand between commas and spaces, in what is printed and in what plugins are given.
bool is_axis_name(std::string_view name) {
  constexpr size_t kLongest = 32;
  const auto letter = [](char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto inside = [&](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= kLongest && letter(name.front()) &&
         std::ranges::all_of(name, inside);
}

Result<Mesh> read_mesh(const Json* list) {
  Mesh mesh;
  int64_t ranks = 1;  // without an open axis
  if (list == nullptr) return mesh;
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& axis = (*list)[i];
    const std::string cause = "axes are pairs [name, size >= 0], got " + axis.dump();
    if (!is_named_size(axis)) return wrong_type("/mesh", cause);
    const auto name = axis[0].get<std::string>();
    const auto size = as_int64(axis[1]);
    if (!size || *size < 0) return wrong_value("/mesh", cause);
    if (!is_axis_name(name)) {
      return wrong_value("/mesh/" + std::to_string(i), "an axis of the mesh is called " + axis[0].dump(),
                         "a letter or _, then letters, digits and _, at most 32 of them");
    }
    if (mesh.find(name)) return mistake("R006", "/mesh", "axis '" + name + "' stands twice", "");
    mesh.axes.push_back({name, *size});
    if (*size > 0 && __builtin_mul_overflow(ranks, *size, &ranks)) ranks = INT64_MAX;
    if (ranks > kMaxRanks) {
      return wrong_value("/mesh", fmt::format("mesh {} has more than {} ranks", mesh.text(), kMaxRanks),
                         "make the axes smaller");
    }
  }
  return mesh;
}

Status read_numerics(const Json& json, Recipe& recipe) {
  Fields fields(json, "/numerics");
  std::string mode;
  fields.text("mode", mode);
  fields.integer("shards", recipe.shards, 1, kMaxMicrobatches);
  if (mode != "fast" && mode != "exact") {
    fields.fail(wrong_value("/numerics/mode", "mode '" + mode + "' is not known", "fast or exact"));
  }
  recipe.exact = mode == "exact";
  if (recipe.exact && (recipe.shards & (recipe.shards - 1)) != 0) {
    fields.fail(wrong_value("/numerics/shards",
                            "shards = " + std::to_string(recipe.shards) + ": must be a power of two"));
  }
  return fields.finish();
}

Status read_rhythm(Fields& top, Recipe& recipe) {
  if (const Json* eval = top.find("eval")) {
    Fields fields(*eval, "/eval");
    fields.integer("every", recipe.eval_every, 0);
    fields.integer("batches", recipe.eval_batches, 0);
    TENON_CHECK(fields.finish());
  }
  if (const Json* save = top.find("save")) {
    Fields fields(*save, "/save");
    fields.integer("every", recipe.save_every, 0);
    fields.integer("keep", recipe.save_keep, 1);
    TENON_CHECK(fields.finish());
  }
  if (const Json* log = top.find("log")) {
    Fields fields(*log, "/log");
    fields.integer("every", recipe.log_every, 1);
    TENON_TRY(recipe.sinks, read_plugins(fields.array("sinks"), "/log/sinks"));
    TENON_CHECK(fields.finish());
  }
  return {};
}

Status read_data(const Json& json, Recipe& recipe) {
  Fields fields(json, "/data");
  read_use(fields, "/data", recipe.data);
  fields.number("valid", recipe.valid, 0, false);
  if (recipe.valid >= 1) fields.fail(wrong_value("/data/valid", "valid is a share below 1"));
  return fields.finish();
}

// {"plugin": ..., "options": ...}, or {"rows": [...]}: a schedule as plain data.
Status read_schedule(const Json& json, Recipe& recipe) {
  if (!json.is_object() || !json.contains("rows")) {
    TENON_TRY(recipe.schedule, read_plugin(&json, "/schedule"));
    return {};
  }
  Fields fields(json, "/schedule");
  if (const Json* rows = fields.array("rows")) recipe.schedule_rows = canonical(*rows);
  return fields.finish();
}

// It becomes the name of a folder.
bool is_run_name(std::string_view name) {
  constexpr size_t kLongest = 64;
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  const auto inside = [&](char c) { return plain(c) || c == '.' || c == '_' || c == '-'; };
  return !name.empty() && name.size() <= kLongest && plain(name.front()) && std::ranges::all_of(name, inside);
}

void read_name(Fields& fields, std::string& name) {
  fields.text("name", name);
  if (!is_run_name(name)) {
    fields.fail(wrong_value("/name", "the recipe is called " + Json(name).dump(),
                            "a letter or digit, then letters, digits, '.', '_' and '-', 64 in all"));
  }
}

void read_numbers(Fields& fields, Recipe& recipe) {
  int64_t version = 0, seed = 0;
  fields.integer("tenon", version, 1);
  read_name(fields, recipe.name);
  fields.integer("seed", seed, 0);
  recipe.seed = static_cast<uint64_t>(seed);
  std::string precision = "f32";
  fields.text("precision", precision);
  fields.integer("steps", recipe.steps, 0);
  fields.integer("batch", recipe.batch, 1);
  fields.integer("microbatches", recipe.microbatches, 1, kMaxMicrobatches);
  fields.integer("context", recipe.context, 1);
  if (precision != "f32" && precision != "f64") {
    fields.fail(wrong_value("/precision", "precision '" + precision + "' is not supported", "f32 or f64"));
  }
  recipe.precision = precision == "f64" ? Dtype::f64 : Dtype::f32;
  if (version > 1) {
    fields.fail(
        wrong_value("/tenon", "format " + std::to_string(version) + " is newer than this tenon reads (1)"));
  }
}

}  // namespace

Result<Recipe> read_recipe(const Json& document) {
  Fields fields(document, "");
  Recipe recipe;
  recipe.document = canonical(document);
  read_numbers(fields, recipe);
  if (const Json* v = fields.find("numerics")) fields.check(read_numerics(*v, recipe));
  if (const Json* v = fields.find("model")) {
    TENON_TRY(recipe.model, read_model(*v));
  }
  if (const Json* v = fields.find("data")) fields.check(read_data(*v, recipe));
  if (const Json* v = fields.find("optimizer")) fields.check(read_optimizer(*v, recipe));
  if (const Json* v = fields.find("lr")) fields.check(read_lr(*v, recipe.lr));
  TENON_TRY(recipe.mesh, read_mesh(fields.array("mesh")));
  TENON_TRY(recipe.strategies, read_plugins(fields.array("strategies"), "/strategies"));
  if (const Json* v = fields.find("schedule", false)) fields.check(read_schedule(*v, recipe));
  if (const Json* v = fields.find("kernels")) fields.check(read_kernels(*v, recipe.kernels));
  fields.boolean("fusion", recipe.fusion);
  TENON_TRY(recipe.comm, read_plugin(fields.find("comm"), "/comm"));
  fields.check(read_rhythm(fields, recipe));
  TENON_CHECK(fields.finish());
  if (recipe.exact && recipe.microbatches != 1) {
    return wrong_value("/microbatches",
                       "microbatches has no meaning in exact mode, whose logical shards are the microbatches",
                       "remove it, or use numerics fast");
  }
  return recipe;
}

Result<Mesh> resolve_mesh(const Mesh& mesh, int64_t world) {
  Mesh out = mesh;
  int64_t known = 1;
  Axis* open = nullptr;
  for (Axis& axis : out.axes) {
    if (axis.size != 0)
      known *= axis.size;
    else if (open == nullptr)
      open = &axis;
    else
      return Error{"P001", "mesh " + mesh.text() + ": only one axis may be 0", "/mesh", "", TENON_E_RECIPE};
  }
  if (open != nullptr && world % known == 0) open->size = world / known;
  if (out.world() != world) {
    return Error{
        "P001",
        "mesh " + mesh.text() + " does not multiply to the " + std::to_string(world) + " ranks started",
        "/mesh", "start " + std::to_string(std::max<int64_t>(known, 1)) + " ranks, or change the mesh",
        TENON_E_RECIPE};
  }
  return out;
}

// A star that did not lead to a match takes one more character; earlier stars need never be tried again.
bool matches_pattern(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0;
  size_t star = std::string_view::npos, taken = 0;  // the last star, and where in the name its run ends
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

double LearningRate::at(int64_t step) const {
  if (step <= warmup && warmup > 0) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  switch (kind) {
    case Kind::constant: return peak;
    case Kind::cosine: {
      const double span = static_cast<double>(std::max<int64_t>(steps - warmup, 1));
      const double t = std::min(1.0, static_cast<double>(step - warmup) / span);
      return floor + 0.5 * (peak - floor) * (1.0 + std::cos(std::numbers::pi * t));
    }
    case Kind::wsd: {
      if (step <= steps - decay || decay == 0) return peak;
      const double t =
          std::min(1.0, static_cast<double>(step - (steps - decay)) / static_cast<double>(decay));
      return peak + (floor - peak) * t;
    }
  }
  return peak;
}

}  // namespace tenon
