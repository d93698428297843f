#include "plan/verify/form.h"

#include <algorithm>
#include <set>

namespace tenon {
namespace {

// Words one behind the other, lists with their length: equal for equal forms alone.
class Key {
 public:
  void add(int64_t word) { out_.append(reinterpret_cast<const char*>(&word), sizeof word); }
  void add(const std::vector<AxisId>& axes) {
    add(static_cast<int64_t>(axes.size()));
    for (AxisId axis : axes) add(static_cast<int64_t>(axis));
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

std::string key_of(const Form& form) {
  Key key;
  key.add(static_cast<int64_t>(form.dtype));
  key.add(static_cast<int64_t>(form.dims.size()));
  for (const DimForm& dim : form.dims) {
    key.add(dim.size);
    key.add(dim.axes);
    key.add(dim.index);
    key.add(dim.of);
  }
  for (const auto* axes :
       {&form.partials, &form.alone, &form.ring, &form.blocks, &form.block.axes, &form.slab.axes})
    key.add(*axes);
  for (int64_t word : {form.shift, form.block.lo, form.block.n, form.slab.index, form.slab.of}) key.add(word);
  return key.take();
}

}  // namespace

Form form_of(Dtype dtype, std::vector<DimForm> dims) {
  Form out;
  out.dtype = dtype;
  out.dims = std::move(dims);
  return out;
}

Form form_of(Dtype dtype, const Dims& dims, const Placement& placement) {
  Form out = form_of(dtype, {});
  for (size_t d = 0; d < dims.size() && d < placement.dims.size(); ++d)
    out.dims.push_back({dims[d].size, placement.dims[d], 0, 1});
  for (const Partial& partial : placement.partials) out.partials.push_back(partial.axis);
  std::ranges::sort(out.partials);
  return out;
}

bool Form::plain() const {
  return shift == 0 && blocks.empty() && block.n == 0 && slab.of == 1 && slab.axes.empty() &&
         std::ranges::all_of(dims, [](const DimForm& dim) { return dim.of == 1; });
}

Placement Form::placement() const {
  Placement out;
  for (const DimForm& dim : dims) out.dims.push_back(dim.axes);
  for (AxisId axis : partials) out.add_partial(axis, Reduction::sum);
  return out;
}

bool Form::cut_by(AxisId axis) const {
  return std::ranges::any_of(dims,
                             [axis](const DimForm& dim) { return std::ranges::count(dim.axes, axis) > 0; });
}

bool Form::partial_over(AxisId axis) const { return std::ranges::count(partials, axis) > 0; }

FormId Forms::id(const Form& form) {
  const auto [it, fresh] = ids_.try_emplace(key_of(form), static_cast<FormId>(known_.size()));
  if (!fresh) return it->second;
  Known& known = known_.emplace_back(Known{form, {}, 0});
  int64_t elements = 1;
  for (const DimForm& dim : form.dims) {
    known.local.push_back(dim.size / mesh_.size(dim.axes) / dim.of);
    elements *= known.local.back();
  }
  const int64_t slabs = form.slab.axes.empty() ? form.slab.of : mesh_.size(form.slab.axes);
  known.bytes = static_cast<uint64_t>(elements / slabs) * static_cast<uint64_t>(size_of(form.dtype));
  return it->second;
}

bool Forms::sound(const Form& form) const {
  std::set<AxisId> used(form.partials.begin(), form.partials.end());
  if (used.size() != form.partials.size()) return false;
  for (const DimForm& dim : form.dims) {
    for (AxisId axis : dim.axes) {
      if (axis >= mesh_.axes.size() || !used.insert(axis).second) return false;
    }
    const int64_t parts = mesh_.size(dim.axes) * dim.of;
    if (dim.size < 0 || parts == 0 || dim.size % parts != 0) return false;
  }
  return true;
}

std::string Forms::text(FormId id) const {
  if (id == kNone) return "unknown";
  const Form& form = (*this)[id];
  Dims dims;
  for (size_t d = 0; d < form.dims.size(); ++d)
    dims.push_back({"dim " + std::to_string(d), form.dims[d].size});
  std::string out = tenon::text(form.placement(), dims, mesh_);
  if (!form.plain()) out += ", a part of that";
  return out;
}

std::string Forms::names(const std::vector<AxisId>& axes) const {
  std::string out;
  for (AxisId axis : axes)
    out += (out.empty() ? "" : ",") + (axis < mesh_.axes.size() ? mesh_.axes[axis].name : "?");
  return out;
}

std::optional<size_t> cut_last_by(const Form& form, const std::vector<AxisId>& axes) {
  for (size_t d = 0; d < form.dims.size(); ++d) {
    const auto& cut = form.dims[d].axes;
    if (cut.size() >= axes.size() && std::equal(axes.rbegin(), axes.rend(), cut.rbegin())) return d;
  }
  return std::nullopt;
}

bool partial_over_all(const Form& form, const std::vector<AxisId>& axes) {
  return std::ranges::all_of(axes, [&](AxisId axis) { return form.partial_over(axis); });
}

void drop_partials(Form& form, const std::vector<AxisId>& axes) {
  for (auto* list : {&form.partials, &form.alone})
    std::erase_if(*list, [&](AxisId axis) { return std::ranges::count(axes, axis) > 0; });
}

std::optional<size_t> leading_dim(const Forms& forms, FormId id) {
  const auto& local = forms.local(id);
  for (size_t d = 0; d < local.size(); ++d) {
    if (local[d] > 1) return d;
  }
  return std::nullopt;
}

}  // namespace tenon
