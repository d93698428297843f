#include "embed/views.h"

#include <fmt/format.h>

#include "embed/host_tensor.h"

namespace tenon::embed {
struct Views::View {
  DLManagedTensorVersioned tensor{};
  std::string name;
  std::vector<int64_t> shape, strides;
  std::shared_ptr<Live> live;
};

DLManagedTensorVersioned* Views::make(const ViewOf& of) {
  auto view = std::make_unique<View>();
  view->name = of.name;
  view->shape = of.dims;
  view->strides.assign(of.dims.size(), 1);
  for (size_t d = of.dims.size(); d-- > 1;) view->strides[d - 1] = view->strides[d] * of.dims[d];
  view->live = live_;
  DLManagedTensorVersioned& tensor = view->tensor;
  tensor.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  tensor.manager_ctx = view.get();
  tensor.deleter = &Views::release;
  tensor.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  tensor.dl_tensor.data = of.data;
  tensor.dl_tensor.device = of.device;
  tensor.dl_tensor.ndim = static_cast<int32_t>(of.dims.size());
  tensor.dl_tensor.dtype = dl_type(of.dtype);
  tensor.dl_tensor.shape = view->shape.data();
  tensor.dl_tensor.strides = view->strides.data();
  {
    const std::lock_guard lock(live_->mutex);
    ++live_->count[of.name];
  }
  return &view.release()->tensor;
}

void Views::release(DLManagedTensorVersioned* self) {
  if (self == nullptr) return;
  const std::unique_ptr<View> view(static_cast<View*>(self->manager_ctx));
  const std::lock_guard lock(view->live->mutex);
  const auto it = view->live->count.find(view->name);
  if (--it->second == 0) view->live->count.erase(it);
}

Status Views::none_live(const std::string& what) const {
  const std::lock_guard lock(live_->mutex);
  if (live_->count.empty()) return {};
  const auto& [name, count] = *live_->count.begin();
  const size_t others = live_->count.size() - 1;
  return Error{
      "E020",
      fmt::format("{} while '{}' is exported ({} live view{}{})", what, name, count, count == 1 ? "" : "s",
                  others == 0 ? "" : fmt::format(", and of {} other tensors", others)),
      "", "call the views' deleters first", TENON_E_STATE};
}

}  // namespace tenon::embed
