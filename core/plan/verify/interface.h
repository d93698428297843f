// What the classes of ranks must know of one another. Each rank knows the interfaces of all of them, on which
// matching and deadlock freedom are proved, and proves the program of its own class against its own: what
// that hands over and gets is what its interface says.
#pragma once

#include "plan/program/program.h"
#include "plan/verify/reference.h"

namespace tenon {

// What a rank does on its communication lanes, in issue order.
struct Transfer {
  InstrId instr = 0;
  TransferKind kind = TransferKind::none;
  std::vector<int32_t> members;  // ascending
  int32_t root = -1;             // send, recv: the sender; broadcast: the root
  uint64_t bytes = 0;
  Dtype dtype = Dtype::f32;
  Reduction reduction = Reduction::sum;
  // Between classes: which value of which microbatch travels, by its id in the placed graph, and as what (see
  // Why). Both ends must mean the same. The name is for messages.
  ValueId value = kNone;
  Why::Because because = Why::Because::op;
  int microbatch = -1;
  std::string name = {};
  uint32_t lane = 0;
  std::vector<size_t> needs = {};  // earlier ones of this list that must be complete before it starts
};
// `rank` must be one that runs this program.
std::vector<Transfer> transfers_of(const Program& program, int64_t rank);
// Those along the pipeline's axis, of any rank of the program's class; members and root are classes.
std::vector<Transfer> transfers_between_classes(const Program& program);

struct Interface {
  // A parameter or a slot of state.
  struct Tensor {
    std::string name;
    std::vector<int64_t> dims;  // global
    Dtype dtype = Dtype::f32;
    bool copy = false;  // another class owns it
    Print bucket;       // where in which bucket it is, and how that is cut
    Print lies = {};    // in which bytes: known of classes whose memory is planned, and no part of the digest

    bool operator==(const Tensor&) const = default;
  };
  std::string program;  // "train"
  Mesh mesh;
  AxisId pipeline_axis = kNone;
  int64_t class_index = 0;
  std::vector<AxisId> batch_axes, seq_axes;
  std::vector<Tensor> params, states;
  std::vector<Transfer> transfers;  // transfers_between_classes()
};
// Of programs that check_form() accepts.
Interface interface_of(const Program& program);
std::vector<Interface> interfaces_of(const std::vector<Program>& programs);
// V005: one for each place on the pipeline's axis, of one run.
Status check_one_run(const std::vector<Interface>& classes);
// And V007: of each parameter one has the original, and all of its state; who holds it has it in the same
// bucket.
Status check_classes(const std::vector<Interface>& classes, const Reference& reference);
// V005: parameters, which outlive a step, lie where the programs that a run begins with put them: in every
// class of every kind of program in the same place, in the same parts.
Status check_alike(const std::vector<Interface>& classes, const std::vector<Interface>& others);
// In a stable form, for the digest.
std::string serialize(const Interface& interface);

}  // namespace tenon
