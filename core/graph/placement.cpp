#include "graph/placement.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "base/assert.h"

namespace tenon {

int64_t Mesh::world() const {
  int64_t n = 1;
  for (const Axis& axis : axes) n *= axis.size;
  return n;
}

std::string Mesh::names(const std::vector<AxisId>& of) const {
  std::string out;
  for (AxisId axis : of) out += (out.empty() ? "" : ",") + axes[axis].name;
  return out;
}

std::optional<AxisId> Mesh::find(std::string_view name) const {
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name == name) return static_cast<AxisId>(i);
  }
  return std::nullopt;
}

std::vector<AxisId> Mesh::find_all(std::string_view name) const {
  if (const auto one = find(name)) return {*one};
  std::vector<AxisId> out;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name.starts_with(std::string(name) + "_")) out.push_back(static_cast<AxisId>(i));
  }
  return out;
}

std::optional<Mesh> Mesh::split(std::string_view name, int64_t outer, std::string* taken) const {
  int64_t before = 1;  // ranks of the atoms in front
  for (AxisId id : find_all(name)) {
    const Axis& atom = axes[id];
    if (before == outer) return *this;
    if (outer % before != 0) return std::nullopt;
    const int64_t part = outer / before;
    if (part >= atom.size) {
      before *= atom.size;
      continue;
    }
    if (atom.size % part != 0) return std::nullopt;
    for (const char* half : {"_out", "_in"}) {
      if (!find(atom.name + half)) continue;
      if (taken != nullptr) *taken = atom.name + half;
      return std::nullopt;
    }
    const std::string whole = atom.part_of.empty() ? atom.name : atom.part_of;
    Mesh out = *this;
    out.axes[id] = {atom.name + "_out", part, whole};
    out.axes.insert(out.axes.begin() + id + 1, {atom.name + "_in", atom.size / part, whole});
    return out;
  }
  return before == outer ? std::optional(*this) : std::nullopt;
}

std::vector<int64_t> Mesh::coordinate(int64_t rank) const {
  TENON_ASSERT(0 <= rank && rank < world());
  std::vector<int64_t> out(axes.size());
  for (size_t i = axes.size(); i-- > 0;) {
    out[i] = rank % axes[i].size;
    rank /= axes[i].size;
  }
  return out;
}

int64_t Mesh::rank(const std::vector<int64_t>& coordinate) const {
  TENON_ASSERT(coordinate.size() == axes.size());
  int64_t rank = 0;
  for (size_t i = 0; i < axes.size(); ++i) rank = rank * axes[i].size + coordinate[i];
  return rank;
}

std::vector<int32_t> Mesh::group(int64_t rank, const std::vector<AxisId>& axis_set) const {
  std::vector<std::vector<int64_t>> members{coordinate(rank)};
  for (AxisId axis : axis_set) {
    std::vector<std::vector<int64_t>> grown;
    for (const auto& member : members) {
      for (int64_t i = 0; i < axes[axis].size; ++i) {
        grown.push_back(member);
        grown.back()[axis] = i;
      }
    }
    members = std::move(grown);
  }
  std::vector<int32_t> out;
  for (const auto& member : members) out.push_back(static_cast<int32_t>(this->rank(member)));
  std::sort(out.begin(), out.end());
  return out;
}

int64_t Mesh::size(const std::vector<AxisId>& axis_set) const {
  int64_t n = 1;
  for (AxisId axis : axis_set) n *= axes[axis].size;
  return n;
}

int64_t index_on(const Mesh& mesh, const std::vector<int64_t>& coordinate, const std::vector<AxisId>& axes) {
  TENON_ASSERT(coordinate.size() == mesh.axes.size());
  int64_t index = 0;
  for (AxisId axis : axes) index = index * mesh.axes[axis].size + coordinate[axis];
  return index;
}

std::string Mesh::text() const {
  std::string out;
  for (const Axis& axis : axes) {
    if (!out.empty()) out += " x ";
    out += axis.name + " " + std::to_string(axis.size);
  }
  return out;
}

bool Placement::is_replicated() const {
  return partials.empty() && std::all_of(dims.begin(), dims.end(), [](const auto& d) { return d.empty(); });
}

bool Placement::is_partial(AxisId axis) const {
  return std::any_of(partials.begin(), partials.end(), [axis](const Partial& p) { return p.axis == axis; });
}

std::optional<size_t> Placement::sharded_dim(AxisId axis) const {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (std::find(dims[i].begin(), dims[i].end(), axis) != dims[i].end()) return i;
  }
  return std::nullopt;
}

void Placement::add_partial(AxisId axis, Reduction reduction) {
  TENON_ASSERT(!sharded_dim(axis));
  if (is_partial(axis)) return;
  partials.push_back({axis, reduction});
  std::sort(partials.begin(), partials.end(),
            [](const Partial& a, const Partial& b) { return a.axis < b.axis; });
}

void Placement::remove_partial(AxisId axis) {
  std::erase_if(partials, [axis](const Partial& p) { return p.axis == axis; });
}

std::string text(const Placement& placement, const Dims& dims, const Mesh& mesh) {
  std::string out;
  for (size_t i = 0; i < placement.dims.size(); ++i) {
    if (placement.dims[i].empty()) continue;
    if (!out.empty()) out += ' ';
    out += "S(" + (i < dims.size() ? dims[i].name : std::to_string(i)) + ")@";
    for (size_t k = 0; k < placement.dims[i].size(); ++k) {
      out += (k > 0 ? "," : "") + mesh.axes[placement.dims[i][k]].name;
    }
  }
  for (const Partial& partial : placement.partials) {
    if (!out.empty()) out += ' ';
    out += (partial.reduction == Reduction::sum ? "P@" : "Pmax@") + mesh.axes[partial.axis].name;
  }
  return out.empty() ? "R" : out;
}

Result<Dims> local_dims(const Dims& dims, const Placement& placement, const Mesh& mesh) {
  Dims out = dims;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t parts = mesh.size(placement.dims[i]);
    if (out[i].size % parts != 0) {
      return Error{
          "P010",
          dims[i].name + " " + std::to_string(dims[i].size) + " is not divisible by the " +
              std::to_string(parts) + " parts that " + text(placement, dims, mesh) + " asks for",
          "",
          "nearest: " + (dims[i].size < parts ? "" : std::to_string(dims[i].size / parts * parts) + " or ") +
              std::to_string((dims[i].size / parts + 1) * parts),
          TENON_E_RECIPE};
    }
    out[i].size /= parts;
  }
  return out;
}

namespace {

struct Pattern {  // one operand of a rule as written: names, variadic ones marked
  std::vector<std::pair<std::string, bool>> names;
};

std::vector<Pattern> parse_operands(const std::string& side) {
  std::vector<Pattern> out;
  std::stringstream operands(side);
  std::string operand;
  while (std::getline(operands, operand, ',')) {
    Pattern pattern;
    std::stringstream words(operand);
    std::string word;
    while (words >> word) {
      const bool variadic = word.size() > 2 && word.ends_with("..");
      pattern.names.emplace_back(variadic ? word.substr(0, word.size() - 2) : word, variadic);
    }
    out.push_back(std::move(pattern));
  }
  return out;
}

using Lengths = std::map<std::string, int64_t>;  // of the variadic names

// Learns the length of an operand's unknown name, if it has just one. False if the rank does not fit.
bool solve_length(const Pattern& operand, size_t rank, Lengths& lengths) {
  int64_t left = static_cast<int64_t>(rank);
  std::vector<std::string> unknown;
  for (const auto& [name, variadic] : operand.names) {
    if (!variadic)
      --left;
    else if (lengths.contains(name))
      left -= lengths[name];
    else
      unknown.push_back(name);
  }
  if (unknown.size() == 1) lengths[unknown[0]] = left;
  return left >= 0 && (left == 0 || !unknown.empty());
}

// Each operand with one unknown name determines it.
bool solve_lengths(const std::vector<Pattern>& inputs, const std::vector<size_t>& ranks, Lengths& lengths) {
  for (size_t known = 0;;) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!solve_length(inputs[i], ranks[i], lengths)) return false;
    }
    if (lengths.size() == known) return true;
    known = lengths.size();
  }
}

class RuleBuilder {
 public:
  RuleBuilder(const Lengths& lengths, const std::string& whole) : lengths_(lengths) {
    std::stringstream words(whole);
    std::string word;
    while (words >> word) {
      if (word[0] == '!')
        kinds_[word.substr(1)] = Rule::Kind::exchange;
      else
        kinds_[word] = Rule::Kind::whole;
    }
  }
  std::vector<int> expand(const Pattern& pattern, Rule& rule) {
    std::vector<int> out;
    for (const auto& [name, variadic] : pattern.names) {
      const auto it = lengths_.find(name);
      const int64_t count = !variadic ? 1 : it == lengths_.end() ? 0 : it->second;
      for (int64_t i = 0; i < count; ++i)
        out.push_back(factor(name, variadic ? std::to_string(i) : "", rule));
    }
    return out;
  }

 private:
  int factor(const std::string& name, const std::string& suffix, Rule& rule) {
    const auto [it, fresh] = ids_.try_emplace(name + suffix, static_cast<int>(rule.factors.size()));
    if (fresh) {
      const auto kind = kinds_.find(name);
      rule.factors.push_back({name + suffix, kind == kinds_.end() ? Rule::Kind::parallel : kind->second});
    }
    return it->second;
  }
  const Lengths& lengths_;
  std::map<std::string, Rule::Kind> kinds_;  // of the factors that are not parallel
  std::map<std::string, int> ids_;
};

std::vector<std::vector<int>> parse_linear(const std::string& linear) {
  std::vector<std::vector<int>> out;
  std::stringstream sets(linear);
  std::string set;
  while (std::getline(sets, set, '|')) {
    out.emplace_back();
    std::stringstream members(set);
    std::string member;
    while (std::getline(members, member, ',')) out.back().push_back(std::stoi(member));
  }
  return out;
}

}  // namespace

Result<Rule> instantiate_rule(const std::string& text, const std::string& whole, const std::string& linear,
                              const std::vector<size_t>& input_ranks) {
  const size_t arrow = text.find("->");
  const std::vector<Pattern> inputs = parse_operands(text.substr(0, arrow));
  const std::vector<Pattern> outputs = parse_operands(text.substr(arrow + 2));
  Lengths lengths;
  if (inputs.size() != input_ranks.size() || !solve_lengths(inputs, input_ranks, lengths)) {
    return Error{"G001", "the operands do not fit the rule '" + text + "'", "", "", TENON_E_ARGUMENT};
  }
  Rule rule;
  RuleBuilder builder(lengths, whole);
  for (const Pattern& pattern : inputs) rule.inputs.push_back(builder.expand(pattern, rule));
  for (const Pattern& pattern : outputs) rule.outputs.push_back(builder.expand(pattern, rule));
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    if (rule.factors[f].kind != Rule::Kind::parallel) continue;
    const auto has = [f](const std::vector<int>& dims) {
      return std::find(dims.begin(), dims.end(), static_cast<int>(f)) != dims.end();
    };
    if (!std::any_of(rule.outputs.begin(), rule.outputs.end(), has)) rule.factors[f].kind = Rule::Kind::sum;
  }
  rule.linear = parse_linear(linear);
  return rule;
}

namespace {

using FactorAxes = std::vector<std::vector<AxisId>>;

// Gives a factor the axes of an operand's dim that shard no other factor yet, unless the factor has some or
// must be whole.
void adopt(const Rule& rule, const std::vector<int>& operand, const Placement& placement, FactorAxes& axes,
           std::set<AxisId>& used) {
  for (size_t d = 0; d < operand.size(); ++d) {
    const int f = operand[d];
    if (!axes[f].empty() || rule.factors[f].kind == Rule::Kind::whole) continue;
    for (AxisId axis : placement.dims[d]) {
      if (used.insert(axis).second) axes[f].push_back(axis);
    }
  }
}

Placement from_factors(const std::vector<int>& operand, const FactorAxes& axes) {
  Placement out;
  for (int f : operand) out.dims.push_back(axes[f]);
  return out;
}

std::set<AxisId> partial_axes(const std::vector<Placement>& given) {
  std::set<AxisId> out;
  for (const Placement& placement : given) {
    for (const Partial& partial : placement.partials) out.insert(partial.axis);
  }
  return out;
}

// An input's own partials, as far as they are kept.
Placement type_input(const std::vector<int>& operand, const FactorAxes& axes, const Placement& given,
                     const std::set<AxisId>& kept) {
  Placement out = from_factors(operand, axes);
  for (const Partial& p : given.partials) {
    if (kept.contains(p.axis)) out.add_partial(p.axis, p.reduction);
  }
  return out;
}

// Partial over the axes of the factors that are contracted into the output, and over those kept.
Placement type_output(const Rule& rule, const std::vector<int>& operand, const FactorAxes& axes,
                      const std::set<AxisId>& kept) {
  Placement out = from_factors(operand, axes);
  for (size_t f = 0; f < axes.size(); ++f) {
    const bool shown = std::find(operand.begin(), operand.end(), static_cast<int>(f)) != operand.end();
    if (shown || rule.factors[f].kind == Rule::Kind::exchange) continue;
    for (AxisId axis : axes[f]) out.add_partial(axis, Reduction::sum);
  }
  for (AxisId axis : kept) out.add_partial(axis, Reduction::sum);
  return out;
}

// Of operands of which no axis cuts any.
Typing type_whole(const Rule& rule) {
  Typing out;
  for (const auto& operand : rule.inputs) out.inputs.push_back(Placement::replicated(operand.size()));
  for (const auto& operand : rule.outputs) out.outputs.push_back(Placement::replicated(operand.size()));
  return out;
}

// True if exactly the inputs of one linear set are partial sums over the axis, which shards none.
bool survives(const Rule& rule, const std::vector<Placement>& given, AxisId axis) {
  std::vector<int> partial;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].sharded_dim(axis)) return false;
    for (const Partial& p : given[i].partials) {
      if (p.axis != axis) continue;
      if (p.reduction != Reduction::sum) return false;
      partial.push_back(static_cast<int>(i));
    }
  }
  return std::find(rule.linear.begin(), rule.linear.end(), partial) != rule.linear.end();
}

}  // namespace

Typing type_op(const Rule& rule, const std::vector<Placement>& given,
               const std::vector<std::optional<Placement>>& wanted, const std::vector<bool>& stays) {
  const auto whole = [](const std::optional<Placement>& one) { return !one || one->is_replicated(); };
  if (std::ranges::all_of(given, &Placement::is_replicated) && std::ranges::all_of(wanted, whole))
    return type_whole(rule);
  FactorAxes axes(rule.factors.size());
  std::set<AxisId> used;
  std::set<AxisId> kept;
  for (AxisId axis : partial_axes(given)) {
    if (survives(rule, given, axis)) kept.insert(axis);
  }
  used = kept;  // an axis that carries a partial through cannot shard a factor as well
  for (size_t i = 0; i < stays.size(); ++i) {
    if (stays[i]) adopt(rule, rule.inputs[i], given[i], axes, used);
  }
  for (size_t i = 0; i < given.size(); ++i) adopt(rule, rule.inputs[i], given[i], axes, used);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i]) adopt(rule, rule.outputs[i], *wanted[i], axes, used);
  }
  Typing out;
  for (size_t i = 0; i < given.size(); ++i) {
    out.inputs.push_back(type_input(rule.inputs[i], axes, given[i], kept));
  }
  for (const auto& operand : rule.outputs) out.outputs.push_back(type_output(rule, operand, axes, kept));
  return out;
}

}  // namespace tenon
