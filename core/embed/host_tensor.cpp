#include "embed/host_tensor.h"

#include <fmt/format.h>

#include <span>

namespace tenon::embed {
namespace {

std::string text(const DLDataType& type) {
  const char* const codes[] = {"int", "uint", "float", "handle", "bfloat"};
  const std::string code =
      type.code < std::size(codes) ? codes[type.code] : fmt::format("type {} of ", type.code);
  return fmt::format("{}{}{}", code, type.bits, type.lanes == 1 ? "" : fmt::format("x{}", type.lanes));
}

bool is_same(const DLDataType& one, const DLDataType& other) {
  return one.code == other.code && one.bits == other.bits && one.lanes == other.lanes;
}

// The stride of a dim of one element says nothing.
bool is_dense(const int64_t* strides, const std::vector<int64_t>& dims) {
  if (strides == nullptr) return true;
  int64_t stride = 1;
  for (size_t d = dims.size(); d-- > 0; stride *= dims[d]) {
    if (dims[d] != 1 && strides[d] != stride) return false;
  }
  return true;
}

}  // namespace

DLDataType dl_type(Dtype dtype) {
  switch (static_cast<uint32_t>(dtype)) {
    case TENON_F64: return {kDLFloat, 64, 1};
    case TENON_BF16: return {kDLBfloat, 16, 1};
    case TENON_F16: return {kDLFloat, 16, 1};
    case TENON_I64: return {kDLInt, 64, 1};
    case TENON_I32: return {kDLInt, 32, 1};
    case TENON_U8: return {kDLUInt, 8, 1};
    default: return {kDLFloat, 32, 1};
  }
}

Result<std::byte*> memory_of(const DLTensor& given, const WholeTensor& tensor) {
  const auto bad = [&](const std::string& what, const std::string& fix) {
    return Error{"A010", fmt::format("the memory for '{}' {}", tensor.name, what), "", fix, TENON_E_ARGUMENT};
  };
  if (given.device.device_type != kDLCPU)
    return bad(fmt::format("is of device type {}", static_cast<int>(given.device.device_type)),
               "give memory of the host, kDLCPU");
  const DLDataType wanted = dl_type(tensor.dtype);
  if (!is_same(given.dtype, wanted))
    return bad("is of " + text(given.dtype), "the tensor's dtype is " + text(wanted));
  if (given.ndim < 0 || (given.ndim > 0 && given.shape == nullptr))
    return bad(fmt::format("has {} dims and no shape", given.ndim), "set 'shape'");
  const std::span shape(given.shape, static_cast<size_t>(given.ndim));
  if (!std::ranges::equal(shape, tensor.dims))
    return bad(fmt::format("is [{}]", fmt::join(shape, " ")),
               fmt::format("the tensor is [{}]", fmt::join(tensor.dims, " ")));
  if (!is_dense(given.strides, tensor.dims)) return bad("is not dense", "give it row by row, strides NULL");
  if (given.data == nullptr && tensor.bytes() > 0) return bad("is NULL", "set 'data'");
  return static_cast<std::byte*>(given.data) + given.byte_offset;
}

}  // namespace tenon::embed
