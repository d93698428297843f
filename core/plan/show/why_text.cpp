#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plan/show/why.h"

namespace tenon {
namespace {

Json operands_json(const Program& program, const std::vector<Operand>& operands) {
  Json out = Json::array();
  for (const Operand& operand : operands) {
    const Buffer& buffer = program.buffers[operand.buffer];
    out.push_back({{"name", operand.name},
                   {"dims", operand.dims},
                   {"dtype", name_of(operand.dtype)},
                   {"bytes", operand.bytes()},
                   {"space", name_of(buffer.space)},
                   {"offset", buffer.offset + operand.offset}});
  }
  return out;
}

// -1 stands for none in a program, null in JSON.
Json number_or_null(int number) { return number < 0 ? Json(nullptr) : Json(number); }

}  // namespace

std::string text(const WhyRecord& record) {
  std::string out = fmt::format("instruction {}: {}\n", record.id, record.what);
  const auto field = [&out](const char* name, const std::string& value) {
    if (!value.empty()) out += fmt::format("  {:<11} {}\n", name, value);
  };
  field("when", record.when);
  field("value", record.value);
  field("op", record.op);
  field("recipe", record.place);
  field("it was", record.had);
  field("wanted", record.wanted);
  field("because", record.because);
  field("rule", record.rule);
  for (const Involved& one : record.strategies)
    field("strategy",
          fmt::format("{} {}{}", one.id, one.said, one.place.empty() ? "" : fmt::format(" ({})", one.place)));
  for (const std::string& part : record.fused) field("fused from", part);
  const std::string sends =
      record.formula.empty() ? "" : fmt::format("; sends {}: {}", record.sends, record.formula);
  field("bytes", fmt::format("{} on each rank{}", record.bytes, sends));
  field("cost", fmt::format("{:.3g} s{}", record.seconds,
                            record.flops > 0 ? fmt::format(", {:.6g} flops", record.flops) : ""));
  return out;
}

Json json_of(const WhyRecord& record) {
  Json out{{"value", record.value},
           {"because", record.because},
           {"bytes", record.bytes},
           {"seconds", record.seconds},
           {"flops", record.flops}};
  const auto field = [&out](const char* name, const std::string& value) {
    if (!value.empty()) out[name] = value;
  };
  field("op", record.op);
  field("place", record.place);
  field("had", record.had);
  field("wanted", record.wanted);
  field("rule", record.rule);
  out["strategies"] = Json::array();
  for (const Involved& one : record.strategies)
    out["strategies"].push_back({{"id", one.id}, {"said", one.said}, {"place", one.place}});
  if (!record.fused.empty()) out["fused"] = record.fused;
  if (!record.formula.empty()) {
    out["sends"] = record.sends;
    out["formula"] = record.formula;
  }
  return out;
}

Json instructions_json(const Program& program, const JointGraph& joint, const RecipeSource& source,
                       const Machine& machine) {
  Json out = Json::array();
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    const Instr& instr = program.instrs[id];
    Json axes = Json::array();
    for (AxisId axis : instr.axes) axes.push_back(program.mesh.axes[axis].name);
    const WhyRecord record = why(program, id, joint, source, machine);
    out.push_back({{"number", id},
                   {"lane", program.lanes[instr.lane]},
                   {"kind", instr.kind},
                   {"phase", name_of(instr.phase)},
                   {"transfer", is_transfer(instr)},
                   {"microbatch", number_or_null(instr.microbatch)},
                   {"layer", number_or_null(record.layer)},
                   {"stage", record.stage},
                   {"reads", operands_json(program, instr.in)},
                   {"writes", operands_json(program, instr.out)},
                   {"accumulates", instr.accumulate},
                   {"axes", std::move(axes)},
                   {"peer", number_or_null(instr.peer)},
                   {"waits", instr.waits},
                   {"why", json_of(record)}});
  }
  return out;
}

}  // namespace tenon
