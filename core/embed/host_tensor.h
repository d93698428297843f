// Tensors in memory of the embedding program, as DLPack describes them.
#pragma once

#include "run/whole_tensors.h"
#include "tenon/dlpack.h"

namespace tenon::embed {

DLDataType dl_type(Dtype dtype);

// Where `given` begins. Error A010 unless it is all of `tensor`: in the host's memory, of its dtype and dims,
// dense and row-major.
Result<std::byte*> memory_of(const DLTensor& given, const WholeTensor& tensor);

}  // namespace tenon::embed
