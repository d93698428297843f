// Follows the program of one class: what each byte range holds after each instruction, from what executor,
// feeder and checkpoints put there before a step to what they read behind it. What an operand says of itself
// (its name, its microbatch) serves messages alone.
#pragma once

#include "plan/verify/kernel_rules.h"
#include "plan/verify/memory.h"
#include "plan/verify/reference.h"
#include "plan/verify/transfer_rules.h"

namespace tenon {

// What the followers of all classes share.
struct Following {
  const Reference& reference;
  const Expected& expected;
  Forms forms;
  KernelRules kernels;
  TransferRules transfers;
};

class Follower {
 public:
  Follower(const Program& program, Following& shared);

  // What is there before the step.
  Status open();
  // From the first instruction to the last.
  Status run();
  // What is there behind it, against what is expected.
  Status finish() const;
  // The first instruction whose result is not what the reference has by the name that it claims; for
  // messages.
  void suspect(bool on) { suspecting_ = on; }
  std::optional<InstrId> suspected() const { return suspected_; }

 private:
  Status place_inputs();
  Status place_tensor(const TensorInfo& info, const Print& print, const Value& value, Dtype dtype);
  Status check_tensor(const TensorInfo& info, const Print& print) const;

  Status step(InstrId id);
  Status check_kernels(const Instr& instr) const;
  Status check_target(const Instr& instr) const;
  ByteRange range(const Operand& operand) const { return range_of(program_, operand); }
  // The whole of a value, in the dims and dtype that the operand says.
  Result<Content> whole(const Operand& operand) const;
  Status write(const Operand& operand, const Content& content);
  void note(InstrId id);

  // -- kernels
  Status kernel(const Instr& instr);
  Status add(const Instr& instr);
  Status slice(const Instr& instr);
  Status concat(const Instr& instr);
  Status zeros(const Instr& instr);
  Status sum(const Instr& instr);
  Status clip_scale(const Instr& instr);
  Status attention(const Instr& instr);
  Status attention_merge(const Instr& instr);
  Status cross_entropy_shard(const Instr& instr);
  Status cross_entropy_join(const Instr& instr);

  // -- buckets
  const FlatLayout* layout_of(const Instr& instr) const;
  Result<Content> bucket(const Operand& operand, int32_t layout, size_t depth) const;
  Status write_bucket(const Operand& operand, int32_t layout, size_t depth, const Content& content);
  Status check_gradient(const std::string& param, const Content& grad) const;
  // Of several numbers about each leaf, those of other members' parts are zero already.
  Status check_zeros(const FlatLayout& layout, const Operand& numbers) const;
  // Sums over the part of a leaf that a rank has: partial over what cuts it.
  Result<FormId> form_of_sums(const FlatLayout& layout, const Form& leaf, int64_t count, bool alone);
  Status norms(const Instr& instr);
  Status own_part(const Instr& instr);
  struct Updating;
  Result<Updating> updating(const Instr& instr) const;
  Status stats(const Instr& instr);
  Status check_stats(const Updating& updating, const Operand& stats) const;
  Status update(const Instr& instr);

  // -- transfers
  Status transfer(const Instr& instr, TransferKind kind);
  Result<Content> summed(const Content& content, const Instr& instr) const;
  Status all_reduce(const Instr& instr);
  Status reduce_scatter(const Instr& instr);
  Status all_gather(const Instr& instr);
  Status all_to_all(const Instr& instr);
  Status share_slabs(const Instr& instr);
  Status regather_slabs(const Instr& instr, const Content& part);
  Status permute(const Instr& instr);
  Result<Content> joint_parts(const Instr& instr) const;

  // -- between classes
  Status handed(const Instr& instr, TransferKind kind);
  std::string name_of_handed(const Instr& instr) const;
  Status give(const Instr& instr, const Memory::Pieces& pieces);
  Status take(const Instr& instr, const Memory::Pieces& pieces);
  Result<Memory::Pieces> handed_pieces(const Instr& instr, bool gives);
  Result<Memory::Pieces> handed_value(const Instr& instr, const Handed& handed);
  Result<Memory::Pieces> handed_output(const Handed& handed);
  Result<Memory::Pieces> handed_gradient(const Handed& handed, int klass);
  Result<Memory::Pieces> handed_param(const Handed& handed);
  Result<uint32_t> bucket_of(const std::string& param) const;
  Memory::Pieces in_bucket(const Content& content, uint32_t layout, size_t depth) const;
  Memory::Pieces one_piece(const Form& form, const Print& print, int32_t microbatch);
  int32_t of_all_microbatches() const;
  Status sum_of_classes(const Instr& instr);

  const Program& program_;
  Following& shared_;
  Forms& forms_;
  const Expected& expected_;
  Memory memory_;
  bool suspecting_ = false;
  std::optional<InstrId> suspected_;
  std::map<int, std::map<std::string, Print>> named_;  // by microbatch: of the reference
};

}  // namespace tenon
