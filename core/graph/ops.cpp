#include "graph/ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <unordered_map>

namespace tenon {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    const size_t begin = part.find_first_not_of(' '), end = part.find_last_not_of(' ');
    if (begin != std::string::npos) parts.push_back(part.substr(begin, end + 1 - begin));
  }
  return parts;
}

constexpr std::array<LimitWords, 5> kLimits{{
    {Limit::at_least, ">=", "at least"},
    {Limit::at_most, "<=", "at most"},
    {Limit::above, ">", "above"},
    {Limit::below, "<", "below"},
    {Limit::multiple, "%", "divisible by"},
}};

// The limit that a text begins with, ">=1", and what is left of it.
std::pair<Limit, std::string> read_limit(const std::string& text) {
  for (const LimitWords& known : kLimits) {
    if (text.starts_with(known.sign)) return {known.limit, text.substr(std::string_view(known.sign).size())};
  }
  std::abort();  // a misspelt row, as below
}

// "d%2"
SizeLimit read_size_limit(const std::string& text) {
  const size_t sign = text.find_first_of("<>%");
  const auto [limit, than] = read_limit(text.substr(sign));
  return {text.substr(0, sign), limit, than};
}

// "theta float >0"
AttrDef read_attr(const std::string& text, bool of_graph) {
  const std::vector<std::string> words = split(text, ' ');
  AttrDef attr{words.at(0), words.at(1) == "int", of_graph, {}};
  for (size_t i = 2; i < words.size(); ++i) {
    const auto [limit, than] = read_limit(words[i]);
    attr.bounds.push_back({limit, std::stod(than)});
  }
  return attr;
}

OperandDef::Type type_named(const std::string& name) {
  using Type = OperandDef::Type;
  static constexpr std::array<std::pair<const char*, Type>, 5> kTypes{{
      {"float", Type::real},
      {"any", Type::any},
      {"f64", Type::f64},
      {"i64", Type::i64},
      {"i32", Type::i32},
  }};
  for (const auto& [word, type] : kTypes) {
    if (name == word) return type;
  }
  std::abort();  // a row of the table is misspelt: the first test that runs says so
}

// One side of a row: operands, and what their dims say beyond letters.
struct Side {
  std::vector<OperandDef> operands;
  std::vector<SizeNote> notes;
  std::vector<SizeLimit> limits;
  std::string rule;
  bool variadic = false;

  explicit Side(const char* text) {
    for (const std::string& part : split(text, ',')) add(part);
  }

 private:
  void add(const std::string& text) {
    const size_t open = text.find('['), close = text.find(']');
    OperandDef operand;
    operand.name = text.substr(0, open);
    if (operand.name[0] == '*') {
      variadic = true;
      operand.name.erase(0, 1);
    }
    for (const std::string& word : split(text.substr(open + 1, close - open - 1), ' '))
      add_dim(operand, word);
    for (const std::string& word : split(text.substr(close + 1), ' ')) {
      if (word == "acc")
        operand.accumulates = true;
      else
        operand.type = type_named(word);
    }
    rule += operands.empty() ? "" : ", ";
    const size_t first = rule.size();
    for (const std::string& word : split(text.substr(open + 1, close - open - 1), ' '))
      rule += (rule.size() > first ? " " : "") + factor_of(word);
    operands.push_back(std::move(operand));
  }

  void add_dim(OperandDef& operand, const std::string& word) {
    const size_t equals = word.find('='), slash = word.find('/');
    const std::string letter = word.substr(0, equals);
    if (equals != std::string::npos) {
      const size_t attr = (slash == std::string::npos ? equals : slash) + 1;
      notes.push_back(
          {operands.size(), operand.dims.size(), slash != std::string::npos, word.substr(attr), letter});
      if (slash != std::string::npos)
        limits.push_back({word.substr(equals + 1, slash - equals - 1), Limit::multiple, word.substr(attr)});
    }
    operand.dims.push_back(letter);
    operand.words.push_back(word);
  }

  // What is sharded: of `n=s/group` the s, of `v=rows` the v.
  static std::string factor_of(const std::string& word) {
    if (word == "?") return "e..";
    const size_t equals = word.find('='), slash = word.find('/');
    return slash == std::string::npos ? word.substr(0, equals) : word.substr(equals + 1, slash - equals - 1);
  }
};

// "x|w" as "0|1".
std::string by_index(const OpDef& def, const std::string& sets) {
  std::string out;
  for (const std::string& set : split(sets, '|')) {
    std::string members;
    for (const std::string& name : split(set, ','))
      members += (members.empty() ? "" : ",") + std::to_string(def.input(name));
    out += (out.empty() ? "" : "|") + members;
  }
  return out;
}

// "n, mean, rstd = layernorm(z, w, b)"
PartDef read_part(const std::string& text) {
  const size_t equals = text.find('='), open = text.find('('), close = text.find(')');
  PartDef part{split(text.substr(equals + 1, open - equals - 1), ' ').at(0),
               split(text.substr(open + 1, close - open - 1), ','), split(text.substr(0, equals), ',')};
  return part;
}

OpDef read(const OpRow& row, OpUse use) {
  OpDef def;
  static_cast<OpRow&>(def) = row;
  def.use = use;
  Side in(row.inputs), out(row.outputs);
  def.rule = in.rule + " -> " + out.rule;
  def.in = std::move(in.operands);
  def.out = std::move(out.operands);
  def.variadic = in.variadic;
  def.in_notes = std::move(in.notes);
  def.out_notes = std::move(out.notes);
  for (const std::string& limit : split(row.sizes, ',')) def.size_limits.push_back(read_size_limit(limit));
  for (const auto* limits : {&in.limits, &out.limits})
    def.size_limits.insert(def.size_limits.end(), limits->begin(), limits->end());
  for (const std::string& attr : split(row.attrs, ',')) def.attr_defs.push_back(read_attr(attr, false));
  for (const std::string& attr : split(row.graph_attrs, ',')) def.attr_defs.push_back(read_attr(attr, true));
  def.linear_inputs = by_index(def, row.linear);
  if (row.inplace[0] != '\0') def.inplace_input = static_cast<int>(def.input(row.inplace));
  for (const std::string& part : split(row.parts, ';')) def.made_of.push_back(read_part(part));
  return def;
}

std::vector<OpDef> make_table() {
  std::vector<OpDef> table;
  for (const OpRow& row : graph_rows()) table.push_back(read(row, OpUse::graph));
  for (const OpRow& row : piece_rows()) table.push_back(read(row, OpUse::piece));
  for (const OpRow& row : fused_rows()) table.push_back(read(row, OpUse::fused));
  return table;
}

size_t position(std::span<const OperandDef> operands, std::string_view name) {
  const std::optional<size_t> found = find_operand(operands, name);
  if (!found) std::abort();  // the caller's promise
  return *found;
}

}  // namespace

size_t OpDef::input(std::string_view name) const { return position(in, name); }
size_t OpDef::output(std::string_view name) const { return position(out, name); }

std::span<const LimitWords> limit_table() { return kLimits; }

const LimitWords& words_of(Limit limit) { return *std::ranges::find(kLimits, limit, &LimitWords::limit); }

bool keeps(Limit limit, double value, double than) {
  switch (limit) {
    case Limit::at_least: return value >= than;
    case Limit::at_most: return value <= than;
    case Limit::above: return value > than;
    case Limit::below: return value < than;
    case Limit::multiple: return std::fmod(value, than) == 0;
  }
  return false;
}

std::optional<size_t> find_operand(std::span<const OperandDef> operands, std::string_view name) {
  const auto it = std::ranges::find(operands, name, &OperandDef::name);
  if (it == operands.end()) return std::nullopt;
  return static_cast<size_t>(it - operands.begin());
}

std::span<const OpDef> op_table() {
  static const std::vector<OpDef> table = make_table();
  return table;
}

const OpDef* find_kind(std::string_view kind) {
  static const std::unordered_map<std::string_view, const OpDef*> index = [] {
    std::unordered_map<std::string_view, const OpDef*> out;
    for (const OpDef& def : op_table()) out.emplace(def.kind, &def);
    return out;
  }();
  const auto it = index.find(kind);
  return it == index.end() ? nullptr : it->second;
}

const OpDef* find_op(std::string_view kind) {
  const OpDef* def = find_kind(kind);
  return def != nullptr && def->use == OpUse::graph ? def : nullptr;
}

Result<Rule> rule_of(const OpDef& def, const std::vector<size_t>& input_ranks) {
  std::string rule = def.rule;
  if (def.variadic) {  // the first operand of the rule stands for all but the last input
    const std::string first = rule.substr(0, rule.find(','));
    std::string more;
    for (size_t i = def.in.size(); i < input_ranks.size(); ++i) more += first + ", ";
    rule = more + rule;
  }
  return instantiate_rule(rule, def.whole, def.linear_inputs, input_ranks);
}

Attrs part_attrs(const OpDef& part, const Attrs& attrs) {
  Attrs out;
  for (const AttrDef& def : part.attr_defs) {
    if (const auto it = attrs.find(def.name); it != attrs.end())
      out.insert(*it);
    else if (def.name == "start")
      out.insert({"start", int64_t{0}});
  }
  return out;
}

TransferKind reshard_of(const OpDef& def) {
  return std::string_view(def.kind) == name_of(TransferKind::slice) ? TransferKind::slice
                                                                    : transfer_named(def.kind);
}

}  // namespace tenon
