#include "plan/program/kernel_desc.h"

#include <bit>

namespace tenon {

KernelDesc::KernelDesc(const Instr& instr, bool exact, int64_t start_shift) : kind_(instr.kind) {
  dims_.reserve(instr.in.size() + instr.out.size());
  const auto shape = [this](const Operand& operand) {
    dims_.push_back(operand.dims);
    return tenon_shape{static_cast<uint32_t>(operand.dtype), static_cast<uint32_t>(operand.dims.size()),
                       dims_.back().data()};
  };
  for (const Operand& operand : instr.in) inputs_.push_back(shape(operand));
  for (const Operand& operand : instr.out) outputs_.push_back(shape(operand));
  for (const auto& [key, value] : instr.attrs) {
    keys_.push_back(key);
    tenon_option option{};
    option.key = keys_.back().c_str();
    if (const auto* i = std::get_if<int64_t>(&value)) {
      option.kind = TENON_INT;
      option.i = *i + (key == "start" ? start_shift : 0);
      option.f = static_cast<double>(option.i);
    } else {
      option.kind = TENON_FLOAT;
      option.f = std::get<double>(value);
    }
    attrs_.push_back(option);
  }
  desc_.struct_size = sizeof desc_;
  if (exact) desc_.flags |= TENON_KERNEL_EXACT;
  if (instr.accumulate) desc_.flags |= TENON_KERNEL_ACCUMULATE;
  desc_.kind = kind_.c_str();
  desc_.inputs = inputs_.data();
  desc_.outputs = outputs_.data();
  desc_.attrs = attrs_.data();
  desc_.num_inputs = static_cast<uint32_t>(inputs_.size());
  desc_.num_outputs = static_cast<uint32_t>(outputs_.size());
  desc_.num_attrs = static_cast<uint32_t>(attrs_.size());
  desc_.inplace = instr.inplace;
}

std::string kernel_key(const Instr& instr, int64_t start_shift) {
  std::string key;
  key.reserve(256);
  const auto word = [&key](char before, int64_t n) {
    key += before;
    key.append(reinterpret_cast<const char*>(&n), sizeof n);
  };
  const auto shape = [&](char before, const Operand& operand) {
    word(before, static_cast<int64_t>(operand.dtype));
    for (int64_t size : *operand.dims) word(',', size);
  };
  key += instr.kind;
  word(' ', instr.accumulate ? 1 : 0);
  word(' ', instr.inplace);
  word(' ', start_shift);
  for (const Operand& operand : instr.in) shape('|', operand);
  for (const Operand& operand : instr.out) shape('>', operand);
  for (const auto& [name, value] : *instr.attrs) {
    key += ' ';
    key += name;
    if (const auto* integer = std::get_if<int64_t>(&value))
      word('\0', *integer);
    else
      word('\1', std::bit_cast<int64_t>(std::get<double>(value)));
  }
  return key;
}

}  // namespace tenon
