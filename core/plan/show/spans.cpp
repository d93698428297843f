#include "plan/show/spans.h"

#include <fmt/format.h>

#include <algorithm>

namespace tenon {
namespace {

// As a schedule's row has it; "" for what a step does once.
std::string row_of(const Instr& instr) {
  if (instr.microbatch < 0) return "";
  return fmt::format("{}{}.{}", name_of(instr.phase), instr.stage, instr.microbatch);
}

const char* category_of(RowKind kind) {
  switch (kind) {
    case RowKind::forward: return "forward";
    case RowKind::input_grad: return "input gradient";
    case RowKind::weight_grad: return "weight gradient";
    case RowKind::backward: return "backward";
  }
  return "";
}

}  // namespace

const char* category_of(Phase phase) {
  switch (phase) {
    case Phase::forward: return "forward";
    case Phase::input_grad: return "input gradient";
    case Phase::weight_grad: return "weight gradient";
    case Phase::step: return "update";
  }
  return "";
}

uint64_t bytes_of(const Instr& instr) {
  uint64_t sum = 0, most = 0;
  for (const auto* operands : {&instr.in, &instr.out}) {
    for (const Operand& operand : *operands) {
      sum += operand.bytes();
      most = std::max(most, operand.bytes());
    }
  }
  return is_transfer(instr) ? most : sum;
}

Span span_of(const Program& program, InstrId id, int rank) {
  const Instr& instr = program.instrs[id];
  Span span;
  span.rank = rank;
  span.lane = program.lanes[instr.lane];
  span.label = instr.kind;
  if (instr.microbatch >= 0) span.label += "." + std::to_string(instr.microbatch);
  span.category = is_transfer(instr) ? instr.kind : category_of(instr.phase);
  span.microbatch = instr.microbatch;
  span.details = {
      {"instruction", int64_t{id}}, {"op", instr.kind}, {"bytes", static_cast<int64_t>(bytes_of(instr))}};
  const auto& named = instr.out.empty() ? instr.in : instr.out;
  if (!named.empty()) span.details.emplace_back("tensor", named[0].name);
  if (const std::string row = row_of(instr); !row.empty()) span.details.emplace_back("row", row);
  if (instr.layer >= 0) span.details.emplace_back("layer", int64_t{instr.layer});
  return span;
}

std::vector<Span> spans_of(const Rows& rows, const RowSimulation& simulation) {
  std::vector<int> stages_before(rows.owner.size());  // on the same rank
  for (size_t stage = 0; stage < rows.owner.size(); ++stage) {
    stages_before[stage] = static_cast<int>(std::count(
        rows.owner.begin(), rows.owner.begin() + static_cast<ptrdiff_t>(stage), rows.owner[stage]));
  }
  std::vector<Span> out;
  for (size_t rank = 0; rank < rows.of_rank.size(); ++rank) {
    for (size_t i = 0; i < rows.of_rank[rank].size(); ++i) {
      const Row& row = rows.of_rank[rank][i];
      const RowTime& time = simulation.of_rank[rank][i];
      out.push_back({static_cast<int>(rank), "compute", text_of(row), category_of(row.kind), row.microbatch,
                     static_cast<double>(time.start), static_cast<double>(time.end),
                     stages_before[static_cast<size_t>(row.stage)]});
    }
  }
  return out;
}

}  // namespace tenon
