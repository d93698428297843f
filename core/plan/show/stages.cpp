#include "plan/show/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "graph/ops.h"
#include "plan/show/sentences.h"

namespace tenon {
namespace {

struct StageRow {
  GraphStage stage;
  const char* name;
  const char* what;
};

constexpr std::array<StageRow, 3> kStages{{
    {GraphStage::model, "model", "the forward graph of one microbatch, as the recipe builds it"},
    {GraphStage::placed, "placed",
     "the forward graph with the strategies' pins, placed without what follows it"},
    {GraphStage::joint, "joint", "forward, backward and update of one microbatch, every value placed"},
}};

const Graph* graph_of(const Graphs& graphs, GraphStage stage) {
  switch (stage) {
    case GraphStage::model: return graphs.model ? &*graphs.model : nullptr;
    case GraphStage::placed: return graphs.placed ? &*graphs.placed : nullptr;
    case GraphStage::joint: return graphs.joint ? &graphs.joint->graph : nullptr;
  }
  return nullptr;
}

const char* role_word(Role role) { return role == Role::param ? "param" : "input"; }

class Writer {
 public:
  Writer(const Graph& graph, bool placed, const Mesh& mesh, const RecipeSource& source)
      : graph_(graph), placed_(placed), mesh_(mesh), source_(source) {}

  std::string run() {
    for (ValueId id = 0; id < graph_.values().size(); ++id) {
      const Value& value = graph_.value(id);
      if (value.producer != kNone) continue;
      out_ += fmt::format("{:<5} {}{}{}\n", role_word(value.role), value_text(id), storage_text(value),
                          place_text(value.pointer));
    }
    for (OpId id = 0; id < graph_.ops().size(); ++id) write_op(id);
    return std::move(out_);
  }

 private:
  void write_op(OpId id) {
    const Op& op = graph_.op(id);
    std::string in, axes;
    for (ValueId value : op.in) in += (in.empty() ? "" : ", ") + graph_.value(value).name;
    for (AxisId axis : op.axes) axes += " over " + mesh_.axes[axis].name;
    const std::string stage =
        graph_.stages() > 1 && op.phase != Phase::step ? fmt::format(" stage {}", op.stage) : "";
    for (size_t k = 0; k < op.out.size(); ++k) {
      if (k == 0)
        out_ +=
            fmt::format("{:5} {}{} {:<20} {} <- {}{}{}\n", id, name_of(op.phase), stage, op.def->kind,
                        value_text(op.out[0]), in, axes, op.reason == kNone ? place_text(op.pointer) : "");
      else
        out_ += fmt::format("{:>{}} {}\n", "and", 29 + stage.size() - 1, value_text(op.out[k]));
    }
    if (op.reason != kNone)
      out_ += fmt::format("        because {}\n", sentence_of(graph_, mesh_, graph_.reasons[op.reason]));
    if (!op.substituted_by.empty())
      out_ += fmt::format("        {} made it {}\n", op.substituted_by, op.def->kind);
  }

  std::string value_text(ValueId id) const {
    const Value& value = graph_.value(id);
    std::string out = fmt::format("{} {}{}", shown_name(graph_, id), name_of(value.dtype), text(value.dims));
    if (placed_) out += " " + text(value.placement, value.dims, mesh_) + origins_text(id);
    return out;
  }

  // "[dp: parallel/data by tokens; tp: parallel/tensor pins seq]"
  std::string origins_text(ValueId id) const {
    const Value& value = graph_.value(id);
    std::string out;
    const auto add = [&](AxisId axis, const std::string& what) {
      out += fmt::format("{}{}: {}", out.empty() ? " [" : "; ", mesh_.axes[axis].name, what);
    };
    for (const Origin& origin : value.origins) {
      if (origin.pinned != id)
        add(origin.axis, fmt::format("{} by {}", origin.by, shown_name(graph_, origin.pinned)));
    }
    for (const Pin& pin : value.pins)
      add(pin.axis, fmt::format("{} pins {}", pin.by, pin.dim ? value.dims[*pin.dim].name : "whole"));
    return out.empty() ? out : out + "]";
  }

  std::string storage_text(const Value& value) const {
    if (!placed_ || value.storage.level == 0) return "";
    return fmt::format(" rests in parts over {}, level {} [{}]", mesh_.names(value.storage.axes),
                       value.storage.level, value.storage.by);
  }

  std::string place_text(const std::string& pointer) const {
    const std::string place = pointer.empty() ? "" : source_.place(pointer);
    return place.empty() ? "" : "  # " + place;
  }

  const Graph& graph_;
  const bool placed_;
  const Mesh& mesh_;
  const RecipeSource& source_;
  std::string out_;
};

}  // namespace

std::optional<GraphStage> graph_stage(std::string_view name) {
  const auto it = std::ranges::find(kStages, name, &StageRow::name);
  return it == kStages.end() ? std::nullopt : std::optional(it->stage);
}

std::string text(const Graphs& graphs, GraphStage stage, const Mesh& mesh, const RecipeSource& source) {
  const auto row = std::find_if(kStages.rbegin(), kStages.rend(), [&](const StageRow& other) {
    return other.stage <= stage && graph_of(graphs, other.stage) != nullptr;
  });
  if (row == kStages.rend()) return "";
  const bool placed = row->stage != GraphStage::model;
  return fmt::format("stage {}: {}{}\n", row->name, row->what,
                     placed ? fmt::format(", on mesh {{{}}}", mesh.text()) : "") +
         Writer(*graph_of(graphs, row->stage), placed, mesh, source).run();
}

}  // namespace tenon
