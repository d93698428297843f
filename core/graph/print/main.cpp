// tenon-op-table header | lua | letters | graph | piece | fused | others: the op table as tenon_sdk/ops.hpp,
// as scripts/tenon/ops.lua, and as the tables of docs/reference/ops.md. tenon-op-table transfers: the names
// of transfers as tenon_sdk/comm/kinds.hpp.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "graph/ops.h"

namespace tenon {
namespace {

const char* name_of(OperandDef::Type type) {
  switch (type) {
    case OperandDef::Type::real: return "float";
    case OperandDef::Type::any: return "any";
    case OperandDef::Type::f64: return "f64";
    case OperandDef::Type::i64: return "i64";
    case OperandDef::Type::i32: return "i32";
  }
  return "?";
}

bool is_kernel(const OpDef& def) { return def.runner == OpRunner::kernel; }
bool accumulates(const OpDef& def) { return std::ranges::count(def.out, true, &OperandDef::accumulates) > 0; }

// -- the SDK's header -------------------------------------------------------------------------------

// Dims as the row writes them, "n=s/group"; a kernel knows nothing of an attribute of the graph's.
std::string kernel_dims(const OpDef& def, const OperandDef& operand) {
  std::vector<std::string> out;
  for (size_t d = 0; d < operand.dims.size(); ++d) {
    const bool of_graph = std::ranges::any_of(def.attr_defs, [&](const AttrDef& attr) {
      return attr.of_graph && operand.words[d] == operand.dims[d] + "=" + attr.name;
    });
    out.push_back(of_graph ? operand.dims[d] : operand.words[d]);
  }
  return fmt::format("{}", fmt::join(out, " "));
}

// "w[v h], ids[b s] i32": what tenon_sdk/kernel_problem.hpp reads.
std::string signature(const OpDef& def, const std::vector<OperandDef>& operands) {
  std::vector<std::string> out;
  for (const OperandDef& operand : operands) {
    const bool repeats = def.variadic && &operand == def.in.data();
    const bool real = operand.type == OperandDef::Type::real;
    out.push_back(fmt::format("{}{}[{}]{}{}", repeats ? "*" : "", operand.name, kernel_dims(def, operand),
                              real ? "" : " ", real ? "" : name_of(operand.type)));
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

void print_header() {
  fmt::print(
      R"(// tenon_sdk/ops.hpp - what a kernel plugin runs: the signature of every op kind. docs/reference/ops.md says
// what they compute. Written by scripts/dev/generate-docs from core/graph/op_rows.cpp; do not edit.
#pragma once

namespace tenon::kernels {{

// Operands: "name[dims] dtype", separated by commas; `k..` stands for any number of dims; dtype is
// float (f32 or f64, the same for all; the default), any (f32, f64, i64 or i32, the same for all) or a
// fixed one. "*name" repeats: it takes all inputs that the other operands leave. Dims "?" are checked
// by the kind itself. A dim `e=experts` is as large as that attribute says, and of `n=s/group` there is one
// for every `group` of s.
struct Signature {{
  const char* kind = "";
  const char* inputs = "";
  const char* outputs = "";
  const char* attrs = "";        // "eps float >0, key int": behind the type, the range
  const char* sizes = "";        // "d%2, k<=e, s%group": what divides the size of a dim, or bounds it
  bool accumulate = false;       // may run with TENON_KERNEL_ACCUMULATE, which may concern some outputs only
  bool inplace = false;          // output 0 may share the memory of input 0
  const char* weight_grad = "";  // the kind that computes the gradients of its parameters
  const char* input_grad = "";   // and of its other inputs; "": none does
}};

// clang-format off
inline constexpr Signature kSignatures[] = {{
)");
  const auto field = [](const char* name, const std::string& text) {
    if (!text.empty()) fmt::print(",\n     .{} = \"{}\"", name, text);
  };
  for (const OpDef& def : op_table()) {
    if (!is_kernel(def)) continue;
    fmt::print("    {{.kind = \"{}\"", def.kind);
    field("inputs", signature(def, def.in));
    field("outputs", signature(def, def.out));
    field("attrs", def.attrs);
    field("sizes", def.sizes);
    if (accumulates(def)) fmt::print(",\n     .accumulate = true");
    if (def.inplace_input == 0) fmt::print(",\n     .inplace = true");
    field("weight_grad", def.weight_grad);
    field("input_grad", def.input_grad);
    fmt::print("}},\n");
  }
  fmt::print("}};\n// clang-format on\n\n}}  // namespace tenon::kernels\n");
}

void print_transfers() {
  fmt::print(
      R"(// tenon_sdk/comm/kinds.hpp - the names of comm operations, by TENON_COMM_*. Written by
// scripts/dev/generate-docs from core/graph/transfer.cpp; do not edit.
#pragma once

namespace tenon::comm {{

// clang-format off
inline constexpr const char* kKindNames[] = {{
)");
  for (const TransferRow& row : transfer_table()) fmt::print("    \"{}\",\n", row.name);
  fmt::print(
      "    \"barrier\",  // no program has one\n}};\n// clang-format on\n\n}}  // namespace tenon::comm\n");
}

// -- Lua --------------------------------------------------------------------------------------------

// Dims in the row's own words, "n=s/group".
std::string lua_operands(const char* text) {
  std::vector<std::string> out;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t open = rest.find('['), close = rest.find(']'),
                 comma = std::min(rest.find(',', close), rest.size());
    const size_t begin = rest.find_first_not_of(' ');
    out.push_back(fmt::format("{{ \"{}\", \"{}\" }}", rest.substr(begin, open - begin),
                              rest.substr(open + 1, close - open - 1)));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return fmt::format("{{ {} }}", fmt::join(out, ", "));
}

// "theta = { above = 0 }", a line for each: as tenon.schema names limits.
std::string lua_attrs(const OpDef& def) {
  const auto name_in_lua = [](Limit limit) {
    return limit == Limit::at_least ? "min" : limit == Limit::at_most ? "max" : words_of(limit).words;
  };
  std::vector<std::string> out;
  for (const AttrDef& attr : def.attr_defs) {
    std::vector<std::string> facts;
    if (attr.integer) facts.emplace_back("whole = true");
    for (const AttrBound& bound : attr.bounds)
      facts.push_back(fmt::format("{} = {}", name_in_lua(bound.limit), bound.than));
    out.push_back(facts.empty() ? fmt::format("{} = {{}}", attr.name)
                                : fmt::format("{} = {{ {} }}", attr.name, fmt::join(facts, ", ")));
  }
  return fmt::format("{{\n        {},\n      }}", fmt::join(out, ",\n        "));
}

// "{ d = 2 }": letters, and what divides their sizes, where that is a number.
std::string lua_divisors(const OpDef& def) {
  std::vector<std::string> out;
  for (const SizeLimit& limit : def.size_limits) {
    const bool number = limit.than.find_first_not_of("0123456789") == std::string::npos;
    if (limit.limit == Limit::multiple && number)
      out.push_back(fmt::format("{} = {}", limit.letter, limit.than));
  }
  return out.empty() ? "" : fmt::format("{{ {} }}", fmt::join(out, ", "));
}

bool is_forward(const OpDef& def) {
  const bool gradients = def.weight_grad[0] != '\0' || def.input_grad[0] != '\0' || def.passes[0] != '\0';
  return def.use == OpUse::graph && (gradients || def.backward != nullptr);
}

void print_lua() {
  fmt::print(
      R"(-- The ops that recipes are made of: operands with their dims, as docs/reference/ops.md has them, attributes with their
-- ranges, what divides sizes, and what letters stand for. Written by scripts/dev/generate-docs from
-- core/graph/op_rows.cpp; do not edit.
return {{
  letters = {{
)");
  for (const DimLetter& letter : dim_letters()) fmt::print("    {} = \"{}\",\n", letter.letter, letter.name);
  fmt::print("  }},\n  kinds = {{\n");
  for (const OpDef& def : op_table()) {
    if (!is_forward(def)) continue;
    fmt::print("    {} = {{\n      inputs = {},\n      outputs = {},\n", def.kind, lua_operands(def.inputs),
               lua_operands(def.outputs));
    if (!def.attr_defs.empty()) fmt::print("      attrs = {},\n", lua_attrs(def));
    if (const std::string divisors = lua_divisors(def); !divisors.empty())
      fmt::print("      divisors = {},\n", divisors);
    fmt::print("    }},\n");
  }
  fmt::print("  }},\n}}\n");
}

// -- the page ---------------------------------------------------------------------------------------

std::string cell(const std::string& text) { return text.empty() ? " " : " " + text + " "; }

std::string operands_cell(const OpDef& def, const std::vector<OperandDef>& operands, bool outputs) {
  std::vector<std::string> out;
  for (const OperandDef& operand : operands) {
    const bool real = operand.type == OperandDef::Type::real, first = &operand == operands.data();
    std::string text = fmt::format("{}[{}]{}{}", operand.name, kernel_dims(def, operand), real ? "" : " ",
                                   real ? "" : name_of(operand.type));
    if (!outputs && first && def.variadic) text = "any number of " + text;
    if (outputs && first && def.inplace[0] != '\0') text += fmt::format(" (inplace {})", def.inplace);
    if (operand.accumulates) text += " (acc)";
    if (outputs && (operand.name == def.loss || operand.name == def.count)) text += " (total)";
    out.push_back(text);
  }
  return cell(fmt::format("{}", fmt::join(out, ", ")));
}

// "eps float, key int" with the names as code. A kernel need not know those of the graph.
std::string attrs_cell(const OpDef& def) {
  std::vector<std::string> out;
  for (const AttrDef& attr : def.attr_defs) {
    if (attr.of_graph) continue;
    std::string text = fmt::format("`{}` {}", attr.name, attr.integer ? "int" : "float");
    for (const AttrBound& bound : attr.bounds)
      text += fmt::format("{} {} {}", &bound == attr.bounds.data() ? "" : " and", words_of(bound.limit).words,
                          bound.than);
    if (attr.name == def.random_key) text += " (random)";
    if (attr.name == def.token_group) text += " (together)";
    out.push_back(text);
  }
  return cell(fmt::format("{}", fmt::join(out, ", ")));
}

// What a row that says nothing itself is: the gradient of another, or the same between ranks.
std::string doc_of(const OpDef& def) {
  if (def.doc[0] != '\0') return def.doc;
  for (const OpDef& other : op_table()) {
    if (std::string_view(other.input_grad) == def.kind || std::string_view(other.weight_grad) == def.kind)
      return fmt::format("gradients of `{}`", other.kind);
  }
  return "";
}

std::string meaning_cell(const OpDef& def) {
  std::string out = doc_of(def);
  if (*def.training_only != '\0')
    out += fmt::format(". In training alone: else {} = {}", def.out[0].name, def.training_only);
  if (*def.sizes != '\0') {
    std::vector<std::string> sizes;
    for (const SizeLimit& limit : def.size_limits)
      sizes.push_back(fmt::format("{} {} {}", limit.letter, words_of(limit.limit).words, limit.than));
    out += fmt::format(". Sizes: {}", fmt::join(sizes, ", "));
  }
  return cell(out);
}

template <class Wanted>
void print_rows(Wanted wanted) {
  fmt::print("| kind | inputs | outputs | attributes | meaning |\n|---|---|---|---|---|\n");
  for (const OpDef& def : op_table()) {
    if (!wanted(def)) continue;
    fmt::print("| `{}` |{}|{}|{}|{}|\n", def.kind, operands_cell(def, def.in, false),
               operands_cell(def, def.out, true), attrs_cell(def), meaning_cell(def));
  }
}

void print_letters() {
  fmt::print("| letter | dim in recipes | stands for |\n|---|---|---|\n");
  for (const DimLetter& letter : dim_letters())
    fmt::print("| `{}` | `{}` | {} |\n", letter.letter, letter.name, letter.doc);
}

int print(std::string_view form) {
  const auto kernels_of = [](OpUse use) {
    return [use](const OpDef& def) { return def.use == use && is_kernel(def); };
  };
  if (form == "header") return print_header(), 0;
  if (form == "transfers") return print_transfers(), 0;
  if (form == "lua") return print_lua(), 0;
  if (form == "letters") return print_letters(), 0;
  if (form == "graph") return print_rows(kernels_of(OpUse::graph)), 0;
  if (form == "piece") return print_rows(kernels_of(OpUse::piece)), 0;
  if (form == "fused") return print_rows(kernels_of(OpUse::fused)), 0;
  if (form == "others") return print_rows([](const OpDef& def) { return !is_kernel(def); }), 0;
  return 2;
}

}  // namespace
}  // namespace tenon

int main(int argc, char** argv) { return argc == 2 ? tenon::print(argv[1]) : 2; }
