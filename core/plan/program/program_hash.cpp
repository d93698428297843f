#include <array>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "base/hash.h"
#include "plan/program/program.h"

namespace tenon {
namespace {

template <class T>
concept Plain = std::is_arithmetic_v<T> || std::is_enum_v<T>;

// Hashes numbers as they lie in memory, texts and lists behind their lengths: different programs, different
// bytes.
class Stream {
 public:
  template <Plain Number>
  Stream& operator<<(Number number) {
    if (filled_ + sizeof number > buffer_.size()) flush();
    std::memcpy(buffer_.data() + filled_, &number, sizeof number);
    filled_ += sizeof number;
    return *this;
  }
  Stream& operator<<(std::string_view text) {
    *this << text.size();
    for (const char letter : text) *this << letter;
    return *this;
  }
  template <class Items>
  Stream& list(const Items& items) {
    *this << items.size();
    for (const auto& item : items) *this << item;
    return *this;
  }
  std::string hex() {
    flush();
    return tenon::hex(hash_.digest());
  }

 private:
  void flush() { hash_.update(std::span<const std::byte>(buffer_).first(std::exchange(filled_, 0))); }

  Sha256 hash_;
  std::array<std::byte, 4096> buffer_{};
  size_t filled_ = 0;
};

void write(Stream& out, const Program& program, const Operand& operand) {
  constexpr uint8_t kNowhere = kNumSpaces;
  if (operand.buffer == kNone) {
    out << kNowhere;
    return;
  }
  const Buffer& buffer = program.buffers[operand.buffer];
  out << buffer.space << buffer.offset << operand.offset << operand.dtype;
  out.list(*operand.dims);
}

void write(Stream& out, const Program& program, const std::vector<Operand>& operands) {
  out << operands.size();
  for (const Operand& operand : operands) write(out, program, operand);
}

void write(Stream& out, const Program& program, const std::map<std::string, Operand>& named) {
  out << named.size();
  for (const auto& [name, operand] : named) write(out << std::string_view(name), program, operand);
}

void write(Stream& out, const Attrs& attrs) {
  out << attrs.size();
  for (const auto& [key, value] : attrs) {
    out << std::string_view(key) << value.index();
    std::visit([&out](auto number) { out << number; }, value);
  }
}

void write(Stream& out, const Program& program, const Instr& instr) {
  out << std::string_view(instr.kind) << instr.phase << instr.microbatch << instr.stage << instr.lane;
  write(out, program, instr.in);
  write(out, program, instr.out);
  write(out, program, instr.workspace);
  write(out, instr.attrs);
  out << instr.accumulate << instr.inplace << instr.offset_step << instr.reduction << instr.peer
      << instr.layout;
  out.list(instr.axes).list(instr.waits);
  if (!is_optimizers(instr)) return;  // their slots are found by their names: state_of_slot()
  for (const Operand& tensor : optimizer_operands(instr).tensors) out << std::string_view(tensor.name);
}

void write(Stream& out, const FlatLayout& layout) {
  out << layout.elements << layout.level << layout.param_depth;
  out.list(layout.axes).list(layout.cuts) << layout.leaves.size();
  for (const FlatLayout::Leaf& leaf : layout.leaves)
    out << leaf.param << leaf.first << leaf.count << leaf.group;
}

void write(Stream& out, const Program& program, const TensorInfo& tensor) {
  out << std::string_view(tensor.name) << std::string_view(text(tensor.dims));
  out << std::string_view(text(tensor.placement, tensor.dims, program.mesh));
  out << tensor.layout << tensor.leaf << tensor.depth << tensor.copy;
  write(out, program, tensor.operand);
}

}  // namespace

std::string program_hash(const Program& program) {
  Stream out;
  out << std::string_view(program.name) << std::string_view(program.mesh.text()) << program.microbatches;
  out.list(program.lanes) << program.window.transfers << program.window.bytes;
  out << program.instrs.size();
  for (const Instr& instr : program.instrs) write(out, program, instr);
  out << program.layouts.size();
  for (const FlatLayout& layout : program.layouts) write(out, layout);
  for (const auto* tensors : {&program.params, &program.states}) {
    out << tensors->size();
    for (const TensorInfo& tensor : *tensors) write(out, program, tensor);
  }
  out << program.inputs.size();
  for (const auto& named : program.inputs) write(out, program, named);
  write(out, program, program.outputs);
  out.list(program.batch_axes).list(program.seq_axes).list(program.space_bytes);
  return out.hex();
}

}  // namespace tenon
