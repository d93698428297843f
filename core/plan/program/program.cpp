#include "plan/program/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <concepts>
#include <deque>
#include <utility>

#include "base/assert.h"
#include "graph/ops.h"

namespace tenon {

const char* name_of(Space space) {
  static constexpr std::array<const char*, kNumSpaces> kNames{"param", "state", "input", "arena"};
  return kNames[static_cast<size_t>(space)];
}

const Operand& moved_operand(const Instr& instr) { return instr.in.empty() ? instr.out[0] : instr.in[0]; }

uint64_t bytes_in_flight(const Instr& instr) {
  uint64_t out = 0;
  for (const auto* operands : {&instr.in, &instr.out})
    for (const Operand& operand : *operands) out = std::max(out, operand.bytes());
  return out;
}

OptimizerOperands optimizer_operands(const Instr& instr) {
  TENON_ASSERT(instr.in.size() >= 2);
  const Operand &grad = instr.in[0], &scale = instr.in[1];
  if (instr.kind == "stats")
    return {grad, scale, std::span(instr.in).subspan(2), instr.out.empty() ? nullptr : &instr.out[0]};
  return {grad, scale, instr.out, instr.in.size() > 2 ? &instr.in[2] : nullptr};
}

const Operand* state_of_slot(std::span<const Operand> states, std::string_view name, Dtype dtype) {
  const auto found = std::ranges::find_if(
      states, [&](const Operand& state) { return state.name == name && state.dtype == dtype; });
  return found == states.end() ? nullptr : &*found;
}

namespace {

// How many members, one behind the other, have one part at this depth.
size_t members_below(const Mesh& mesh, const FlatLayout& layout, size_t depth) {
  int64_t parts = 1;
  for (size_t i = 0; i < depth; ++i) parts *= mesh.axes[layout.axes[i]].size;
  return layout.members() / static_cast<size_t>(parts);
}

}  // namespace

std::vector<AxisId> axes_between(const FlatLayout& layout, size_t outer, size_t inner) {
  TENON_ASSERT(outer <= inner && inner <= layout.depth());
  const auto at = [&](size_t depth) { return layout.axes.begin() + static_cast<std::ptrdiff_t>(depth); };
  return {at(outer), at(inner)};
}

FlatPart part_at(const Mesh& mesh, const FlatLayout& layout, size_t depth, size_t member) {
  TENON_ASSERT(member < layout.members() && depth <= layout.depth());
  const size_t together = members_below(mesh, layout, depth);
  const size_t first = member / together * together;
  return {layout.cuts[first], layout.cuts[first + together] - layout.cuts[first]};
}

int64_t most_at(const Mesh& mesh, const FlatLayout& layout, size_t depth) {
  const size_t together = members_below(mesh, layout, depth);  // that hold the same
  int64_t out = 0;
  for (size_t first = 0; first < layout.members(); first += together)
    out = std::max(out, layout.cuts[first + together] - layout.cuts[first]);
  return out;
}

LeafPart leaf_in(const FlatLayout::Leaf& leaf, const FlatPart& part) {
  const int64_t lo = std::max(leaf.first, part.first);
  const int64_t hi = std::min(leaf.first + leaf.count, part.first + part.count);
  if (lo >= hi) return {};
  return {lo - leaf.first, hi - lo, lo - part.first};
}

size_t member_of(const Program& program, const FlatLayout& layout, int64_t rank) {
  return static_cast<size_t>(index_on(program.mesh, program.mesh.coordinate(rank), layout.axes));
}

FlatPart part_of(const Program& program, const FlatLayout& layout, size_t depth, int64_t rank) {
  return part_at(program.mesh, layout, depth, member_of(program, layout, rank));
}

std::optional<Depths> depths_of(const FlatLayout& layout, const std::vector<AxisId>& axes) {
  const auto found = std::search(layout.axes.begin(), layout.axes.end(), axes.begin(), axes.end());
  if (axes.empty() || found == layout.axes.end()) return std::nullopt;
  const auto outer = static_cast<size_t>(found - layout.axes.begin());
  return Depths{outer, outer + axes.size()};
}

std::vector<int64_t> shares_of(const Mesh& mesh, const FlatLayout& layout, const Depths& depths,
                               size_t member) {
  const size_t together = members_below(mesh, layout, depths.outer);
  const size_t step = members_below(mesh, layout, depths.inner);
  const size_t first = member / together * together;
  std::vector<int64_t> out;
  for (size_t other = first; other < first + together; other += step)
    out.push_back(part_at(mesh, layout, depths.inner, other).count);
  return out;
}

const Operand& input(const Instr& instr, std::string_view name) {
  return instr.in[find_kind(instr.kind)->input(name)];
}
const Operand& output(const Instr& instr, std::string_view name) {
  return instr.out[find_kind(instr.kind)->output(name)];
}
Operand& input(Instr& instr, std::string_view name) { return instr.in[find_kind(instr.kind)->input(name)]; }
Operand& output(Instr& instr, std::string_view name) {
  return instr.out[find_kind(instr.kind)->output(name)];
}

const Operand* find_input(const Instr& instr, std::string_view name) {
  const OpDef* def = find_kind(instr.kind);
  const auto at = def == nullptr ? std::nullopt : find_operand(def->in, name);
  return at && *at < instr.in.size() ? &instr.in[*at] : nullptr;
}

namespace {

// Of one operand; none where several of its letters stand for any number of dims.
std::optional<int64_t> size_in(const OperandDef& def, const Operand& operand, std::string_view letter) {
  const auto it = std::ranges::find(def.dims, letter);
  const auto several = [](const std::string& dim) { return dim.ends_with("..") || dim == "?"; };
  const auto open = static_cast<size_t>(std::ranges::count_if(def.dims, several));
  if (it == def.dims.end() || open > 1 || operand.dims.size() + open < def.dims.size()) return std::nullopt;
  const auto at = static_cast<size_t>(it - def.dims.begin()), behind = def.dims.size() - at - 1;
  const bool shifted = std::any_of(def.dims.begin(), it, several);
  const size_t first = shifted ? operand.dims.size() - behind - 1 : at;
  const size_t end = several(*it) ? operand.dims.size() - behind : first + 1;
  int64_t size = 1;
  for (size_t i = first; i < end; ++i) size *= operand.dims[i];
  return size;
}

}  // namespace

std::optional<int64_t> size_of_letter(const Instr& instr, std::string_view letter) {
  const OpDef* def = find_kind(instr.kind);
  if (def == nullptr || def->variadic) return std::nullopt;
  for (size_t i = 0; i < std::min(def->in.size(), instr.in.size()); ++i) {
    if (const auto size = size_in(def->in[i], instr.in[i], letter)) return size;
  }
  for (size_t i = 0; i < std::min(def->out.size(), instr.out.size()); ++i) {
    if (const auto size = size_in(def->out[i], instr.out[i], letter)) return size;
  }
  return std::nullopt;
}

Held held_by(const Program& program, const TensorInfo& tensor, int64_t rank) {
  if (tensor.depth == 0) return {0, tensor.operand.elements(), tensor.operand.buffer, tensor.operand.offset};
  TENON_ASSERT(tensor.layout < program.layouts.size());
  const FlatLayout& layout = program.layouts[tensor.layout];
  TENON_ASSERT(tensor.leaf < layout.leaves.size());
  const LeafPart part = leaf_in(layout.leaves[tensor.leaf], part_of(program, layout, tensor.depth, rank));
  const auto bytes = static_cast<uint64_t>(part.at * size_of(tensor.operand.dtype));
  return {part.first, part.count, tensor.operand.buffer, bytes};
}

namespace {

// Appends to a text. A format would be read anew for each of a program's many operands.
class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  Writer& operator<<(std::string_view text) {
    out_ += text;
    return *this;
  }
  template <std::integral Number>
  Writer& operator<<(Number number) {
    char digits[24];
    out_.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
    return *this;
  }
  template <class Items>
  Writer& list(const Items& items, std::string_view between) {
    bool first = true;
    for (const auto& item : items) *this << (std::exchange(first, false) ? "" : between) << item;
    return *this;
  }
  // Blanks before or behind it, up to a width.
  Writer& right(std::string_view text, size_t width) {
    out_.append(width - std::min(width, text.size()), ' ');
    return *this << text;
  }
  Writer& left(std::string_view text, size_t width) {
    *this << text;
    out_.append(width - std::min(width, text.size()), ' ');
    return *this;
  }

 private:
  std::string& out_;
};

void write_shape(Writer& out, const Operand& operand) {
  out << name_of(operand.dtype) << "[";
  out.list(operand.dims, " ") << "]";
}

void write_attrs(Writer& out, const Attrs& attrs) {
  for (const auto& [key, value] : attrs) {
    out << " " << key << "=";
    if (const auto* whole = std::get_if<int64_t>(&value))
      out << *whole;
    else
      out << fmt::format("{}", std::get<double>(value));
  }
}

void write_names(Writer& out, const std::vector<Operand>& operands, size_t most) {
  for (size_t i = 0; i < operands.size() && i < most; ++i) out << (i > 0 ? ", " : "") << operands[i].name;
  if (operands.size() > most) out << ", ... (" << operands.size() << " in all)";
}

void write_axes(Writer& out, const Program& program, const Instr& instr) {
  const auto name = [&](AxisId axis) -> std::string_view { return program.mesh.axes[axis].name; };
  const TransferKind kind = transfer_of(instr);
  if (is_one_way(kind)) {
    out << (kind == TransferKind::send ? " to " : " from ") << name(instr.axes[0]) << " " << instr.peer;
    return;
  }
  for (size_t i = 0; i < instr.axes.size(); ++i) out << (i == 0 ? " over " : ",") << name(instr.axes[i]);
}

void write_line(Writer& out, const Program& program, InstrId id) {
  const Instr& instr = program.instrs[id];
  const Operand& first = instr.out.empty() ? instr.in.front() : instr.out.front();
  out.right(std::to_string(id), 5) << " ";
  out.left(program.lanes[instr.lane], 8) << " " << name_of(instr.phase) << " ";
  out.left(instr.kind, 20) << " ";
  write_names(out, instr.out, 3);
  out << (instr.accumulate ? " += " : " = ");
  write_shape(out, first);
  out << " <- ";
  write_names(out, instr.in, 4);
  write_axes(out, program, instr);
  write_attrs(out, instr.attrs);
  if (!instr.waits.empty()) (out << "  wait ").list(instr.waits, ",");
  out << "\n";
}

}  // namespace

std::string text(const Program& program, const PrintOptions& options) {
  std::string out =
      fmt::format("program {} mesh {{{}}} microbatches {}\nlanes {} window {} transfers {} bytes\n",
                  program.name, program.mesh.text(), program.microbatches, fmt::join(program.lanes, " "),
                  program.window.transfers, program.window.bytes);
  for (const TensorInfo& param : program.params) {
    out += fmt::format("param {} {}{} {}\n", param.name, name_of(param.operand.dtype), text(param.dims),
                       text(param.placement, param.dims, program.mesh));
  }
  Writer writer(out);
  int folded = 0;
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    if (options.fold && program.instrs[id].microbatch > 0) {
      ++folded;
      continue;
    }
    write_line(writer, program, id);
  }
  if (folded > 0) {
    out += fmt::format("({} instructions of microbatches 1 to {} not shown)\n", folded,
                       program.microbatches - 1);
  }
  for (size_t i = 0; i < kNumSpaces; ++i) {
    out += fmt::format("memory {:<6} {:>14} bytes\n", name_of(static_cast<Space>(i)), program.space_bytes[i]);
  }
  return out;
}

Order::Order(const Program& program) : behind_(program.instrs.size()) {
  const auto end = static_cast<InstrId>(program.instrs.size());
  std::vector<std::deque<InstrId>> in_flight(program.lanes.size());
  for (InstrId id = 0; id < end; ++id) {
    const Instr& instr = program.instrs[id];
    TENON_ASSERT(instr.lane < in_flight.size());
    for (InstrId wait : instr.waits) {
      if (wait >= id) continue;
      auto& queue = in_flight[program.instrs[wait].lane];
      for (; !queue.empty() && queue.front() <= wait; queue.pop_front()) behind_[queue.front()] = id;
    }
    behind_[id] = instr.lane == 0 ? id + 1 : end;
    if (instr.lane != 0) in_flight[instr.lane].push_back(id);
  }
}

}  // namespace tenon
