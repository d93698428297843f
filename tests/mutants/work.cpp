#include "work.h"

#include <algorithm>
#include <span>

#include "layouts.h"
#include "plan/program/bucket_kernels.h"

namespace tenon::mutants {
namespace {

struct Span {
  const char* lo = nullptr;
  const char* hi = nullptr;
  bool operator==(const Span&) const = default;
};
bool overlap(const Span& a, const Span& b) { return a.lo < b.hi && b.lo < a.hi; }

class Preparing {
 public:
  Preparing(const Machine& machine, const Program& program, int64_t rank, RankMemory& memory,
            Channels& channels)
      : machine_(machine), program_(program), rank_(rank), memory_(memory), channels_(channels) {}

  RankWork run() {
    out_.lanes = program_.lanes.size();
    for (InstrId id = 0; id < program_.instrs.size(); ++id) add(id);
    return std::move(out_);
  }

 private:
  void add(InstrId id) {
    const Instr& instr = program_.instrs[id];
    require(instr.lane < program_.lanes.size(), "an instruction is on no lane");
    Work work;
    work.lane = instr.lane;
    work.waits = instr.waits;
    for (InstrId wait : instr.waits) require(wait < id, "an instruction waits for a later one");
    work.first_call = static_cast<uint32_t>(out_.calls.size());
    work.first_update = static_cast<uint32_t>(out_.updates.size());
    if (is_optimizers(instr))
      add_updates(instr);
    else if (instr.lane != 0)
      work.post = post_of(program_, instr, machine_.mesh, rank_, memory_, channels_);
    else
      add_kernels(instr);
    work.num_calls = static_cast<uint32_t>(out_.calls.size()) - work.first_call;
    work.num_updates = static_cast<uint32_t>(out_.updates.size()) - work.first_update;
    out_.instrs.push_back(std::move(work));
  }

  void add_kernels(const Instr& instr) {
    std::optional<size_t> member;
    const bool bucket = instr.kind == "norms" || instr.kind == "own_part";
    if (bucket || instr.layout >= 0) {
      const FlatLayout& layout = layout_of(program_, instr.layout);
      require(!bucket || (instr.in.size() == 1 && instr.out.size() == 1),
              "a bucket has one operand and result");
      require(attr_int(instr.attrs, "chunk") >= 0, "a chunk has no elements");
      member = member_of(program_, layout, rank_);
    }
    int64_t shift = 0;
    if (instr.offset_step != 0) {
      for (AxisId axis : instr.axes) require(axis < machine_.mesh.axes.size(), "no such axis");
      shift = instr.offset_step * index_on(machine_.mesh, machine_.mesh.coordinate(rank_), instr.axes);
    }
    for (const Instr& kernel : kernels_of(program_, instr, member, storage_)) add_call(kernel, shift);
  }

  void add_call(const Instr& instr, int64_t shift) {
    std::vector<Span> read, written;
    const auto first = static_cast<uint32_t>(out_.pointers.size());
    const auto point = [&](const Operand& operand, std::vector<Span>& spans) {
      char* at = memory_.at(program_, operand);
      spans.push_back({at, at + bytes_of(operand)});
      out_.pointers.push_back(at);
    };
    for (const Operand& operand : instr.in) point(operand, read);
    for (const Operand& operand : instr.out) point(operand, written);
    const bool workspace = instr.workspace.buffer != kNone;
    if (workspace)
      point(instr.workspace, written);
    else
      out_.pointers.push_back(nullptr);
    const Kernels::Prepared& prepared = machine_.kernels.of(instr, shift);
    require(prepared.workspace <= (workspace ? bytes_of(instr.workspace) : 0),
            "a kernel's workspace is too small");
    check_apart(instr, read, written);
    out_.calls.push_back({prepared.kernel, first});
  }

  // What a kernel writes is apart from all else that it touches, unless it is told that it works in place.
  static void check_apart(const Instr& instr, const std::vector<Span>& read,
                          const std::vector<Span>& written) {
    for (size_t k = 0; k < written.size(); ++k) {
      for (size_t i = 0; i < read.size(); ++i) {
        const bool in_place = k == 0 && static_cast<int>(i) == instr.inplace && read[i] == written[k];
        require(in_place || !overlap(read[i], written[k]), "a kernel writes over what it reads");
      }
      for (size_t j = 0; j < k; ++j)
        require(!overlap(written[j], written[k]), "two results of a kernel share bytes");
    }
  }

  void add_updates(const Instr& instr) {
    const FlatLayout& layout = layout_of(program_, instr.layout);
    const OptimizerOperands operands = optimizer_operands(instr);
    const bool measures = instr.kind == "stats";
    require(instr.in.size() >= 2 && !operands.tensors.empty(), "an update lacks operands");
    const FlatPart mine = part_of(program_, layout, layout.depth(), rank_);
    std::map<int, size_t> of_group;
    uint64_t sums = 0;
    for (const FlatLayout::Leaf& leaf : layout.leaves) {
      require(leaf.group >= 0 && static_cast<size_t>(leaf.group) < machine_.optimizer.groups(),
              "no such optimizer group");
      require(leaf.param < program_.params.size(), "a bucket holds no such parameter");
      const auto group = static_cast<size_t>(leaf.group);
      const LeafPart part = leaf_in(leaf, mine);
      const uint64_t at = sums, count = machine_.optimizer.stats(group);
      sums += count;
      if (part.count == 0 || (measures && count == 0)) continue;
      const auto [known, fresh] = of_group.try_emplace(leaf.group, out_.updates.size());
      if (fresh) out_.updates.push_back({group, measures, {}, {}, nullptr});
      Update& update = out_.updates[known->second];
      add_piece(instr, program_.params[leaf.param], part, part.count == leaf.count, update);
      if (count == 0) continue;
      require(operands.stats != nullptr, "an update lacks its statistics");
      update.pieces.back().stats = reinterpret_cast<double*>(
          memory_.at(program_, operands.stats->buffer, operands.stats->offset + at * sizeof(double),
                     count * sizeof(double)));
    }
  }

  void add_piece(const Instr& instr, const TensorInfo& param, const LeafPart& part, bool whole,
                 Update& update) {
    const std::span<const Operand> tensors = optimizer_operands(instr).tensors;
    const auto size = static_cast<uint64_t>(size_of(param.operand.dtype));
    const auto address = [&](const Operand& operand) {
      const auto offset = static_cast<uint64_t>(part.at * size_of(operand.dtype));
      return memory_.at(program_, operand.buffer, operand.offset + offset,
                        static_cast<uint64_t>(part.count) * size);
    };
    update.scale = memory_.at(program_, instr.in[1].buffer, instr.in[1].offset, sizeof(double));
    std::vector<void*>& slots = update.slots.emplace_back();
    for (const SlotDeclaration& slot : machine_.optimizer.slots(update.group)) {
      const Operand* state =
          state_of_slot(tensors.subspan(1), slot.name, slot.dtype_for(param.operand.dtype));
      require(state != nullptr, "an update lacks a slot");
      slots.push_back(address(*state));
    }
    tenon_update& piece = update.pieces.emplace_back();
    piece.struct_size = sizeof piece;
    piece.dtype = static_cast<uint32_t>(param.operand.dtype);
    piece.count = static_cast<uint64_t>(part.count);
    piece.rows = whole && !param.operand.dims.empty() ? static_cast<uint64_t>(param.operand.dims[0]) : 1;
    piece.param = address(tensors[0]);
    piece.grad = address(instr.in[0]);
    piece.slots = slots.data();  // of a vector that stays where it is
  }

  const Machine& machine_;
  const Program& program_;
  const int64_t rank_;
  RankMemory& memory_;
  Channels& channels_;
  std::vector<Instr> storage_;
  RankWork out_;
};

}  // namespace

RankWork prepare(const Machine& machine, const Program& program, int64_t rank, RankMemory& memory,
                 Channels& channels) {
  return Preparing(machine, program, rank, memory, channels).run();
}

}  // namespace tenon::mutants
