#include "run/whole_tensors.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace tenon {
namespace {

constexpr size_t kPieceWords = size_t{32} << 10;

checkpoint::Slice whole_slice(const WholeTensor& tensor) {
  return {checkpoint::whole_box(tensor.dims), {0, tensor.elements()}};
}

}  // namespace

int64_t WholeTensor::elements() const { return checkpoint::num_elements(checkpoint::whole_box(dims)); }

std::vector<WholeTensor> whole_tensors(const Compiled& layout) {
  std::vector<WholeTensor> out;
  for (const bool is_state : {false, true}) {
    for (const Interface& one : layout.classes) {
      for (const Interface::Tensor& tensor : is_state ? one.states : one.params) {
        if (!tensor.copy) out.push_back({tensor.name, tensor.dtype, tensor.dims, is_state});
      }
    }
  }
  const JointGraph& model = *layout.reference->joint;
  std::map<std::string, size_t> order;
  for (ValueId id : model.params) order.emplace(model.graph.value(id).name, order.size());
  const auto place = [&](const WholeTensor& tensor) {  // state is "<parameter>/<slot>"
    return std::pair(tensor.is_state, order[tensor.name.substr(0, tensor.name.find('/'))]);
  };
  std::ranges::stable_sort(out, {}, place);
  return out;
}

Result<std::unique_ptr<WholeTensors>> WholeTensors::open(Session& session) {
  TENON_TRY(auto piece, WordSum::open(session.device(), kPieceWords));
  TENON_TRY(auto words, WordSum::open(session.device(), 2));
  return std::unique_ptr<WholeTensors>(new WholeTensors(session, std::move(piece), std::move(words)));
}

// Sums of whole words of which all but one are zero: nothing is rounded, whatever the dtype.
Status WholeTensors::read(const WholeTensor& tensor, std::byte* into) {
  const Tensors& tensors = session_.tensors();
  const TensorInfo* const mine = tensors.find(tensor.name);
  const bool gives = mine != nullptr && tensors.speaks_for(*mine);
  const int64_t element = size_of(tensor.dtype);
  checkpoint::Slice piece = whole_slice(tensor);
  const int64_t total = piece.flat.size, most = static_cast<int64_t>(piece_->bytes().size()) / element;
  for (int64_t first = 0; first < total; first += most) {
    piece.flat = {first, std::min(most, total - first)};
    std::ranges::fill(piece_->words(), 0);
    std::byte* const bytes = piece_->bytes().data();
    if (gives) {
      checkpoint::copy_overlap(tensors.slice(*mine), reinterpret_cast<const std::byte*>(tensors.data(*mine)),
                               piece, bytes, element);
    }
    TENON_CHECK(piece_->add_up(tensor.name));
    if (into != nullptr)
      std::memcpy(into + first * element, bytes, static_cast<size_t>(piece.flat.size * element));
  }
  return {};
}

void WholeTensors::write(const WholeTensor& tensor, const std::byte* from) const {
  const Tensors& tensors = session_.tensors();
  const TensorInfo* const mine = tensors.find(tensor.name);
  if (mine == nullptr) return;
  checkpoint::copy_overlap(whole_slice(tensor), from, tensors.slice(*mine),
                           reinterpret_cast<std::byte*>(tensors.data(*mine)), size_of(tensor.dtype));
}

}  // namespace tenon
