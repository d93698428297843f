// Appends buffers and instructions to a program; knows nothing of graphs. Operands are values: what a
// function returns is where its result lies.
#pragma once

#include "plan/program/program.h"

namespace tenon {

class ProgramBuilder {
 public:
  ProgramBuilder(std::string name, const Mesh& mesh, int64_t microbatches);

  const Program& program() const { return program_; }
  Program& program() { return program_; }
  const Mesh& mesh() const { return program_.mesh; }
  // Stage and microbatch that instructions outside Phase::step belong to from now on.
  void enter(int stage, int microbatch) {
    stage_ = stage;
    microbatch_ = microbatch;
  }
  int microbatch() const { return microbatch_; }
  int stage() const { return stage_; }

  // What is begun while the returned value lives is there for this reason; then for the one before again.
  class Because {
   public:
    Because(ProgramBuilder& builder, const Why& why) : builder_(builder), before_(builder.why_) {
      builder.why_ = why;
    }
    Because(const Because&) = delete;
    Because& operator=(const Because&) = delete;
    ~Because() { builder_.why_ = before_; }

   private:
    ProgramBuilder& builder_;
    const Why before_;
  };
  [[nodiscard]] Because because(const Why& why) { return {*this, why}; }
  // The same reason as now, but a step of a sum in the fixed tree.
  [[nodiscard]] Because in_tree() {
    Why why = why_;
    why.tree = true;
    return {*this, why};
  }

  BufferId add_buffer(const SharedText& name, Space space, uint64_t bytes);
  // A tensor in an arena buffer of its own.
  Operand scratch(const SharedText& name, Dtype dtype, Extents dims);

  // An instruction of the current microbatch, to be completed and pushed.
  Instr begin(const char* kind, Phase phase) const;
  void push(Instr instr) { program_.instrs.push_back(std::move(instr)); }

  // a += b; returns a.
  Operand add(const Operand& a, const Operand& b, Phase phase);
  // Copies all elements; the shapes may differ.
  void copy(const Operand& from, const Operand& to, Phase phase);
  // to = size elements of `from` along dim. With axes, the start is that times the coordinate on them.
  void slice(const Operand& from, const Operand& to, int64_t dim, int64_t start,
             const std::vector<AxisId>& axes, Phase phase);
  // n equal parts of a tensor along dim, one behind the other in memory; and back.
  Operand pack(const Operand& from, int64_t dim, int64_t n, Phase phase);
  void unpack(const Operand& packed, const std::vector<int64_t>& part_dims, const Operand& to, int64_t dim,
              Phase phase);
  // Both are on a lane of that peer.
  void send(AxisId axis, int peer, const Operand& in, Phase phase);
  void recv(AxisId axis, int peer, const Operand& out, Phase phase);
  // From the member `root` to all others of the axis; `mine`: this is it.
  void broadcast(AxisId axis, int root, bool mine, const Operand& value);
  // To the next member of the axes, from the one before.
  void shift(const std::vector<AxisId>& axes, const Operand& in, const Operand& out, Phase phase);
  // On the lane of the first axis.
  void collective(TransferKind kind, const std::vector<AxisId>& axes, Phase phase, const Operand& in,
                  const Operand& out);

 private:
  uint32_t lane(const std::string& name);
  Instr to_peer(TransferKind kind, const std::string& lane_name, AxisId axis, int peer, Phase phase);

  Program program_;
  int microbatch_ = 0, stage_ = 0;
  Why why_;
};

// Elements [first, first + prod(dims)) of a tensor, in its own memory.
Operand part(const Operand& whole, int64_t first, Extents dims, const SharedText& name);

}  // namespace tenon
