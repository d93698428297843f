#include "run/declarations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/struct_size.h"
#include "base/text.h"
#include "run/checkpoint/manifest.h"

namespace tenon {
namespace {

constexpr uint32_t kMostSlots = 64, kMostFields = 64, kMostDims = 8, kMostStats = 64;
constexpr int64_t kMostElements = int64_t{1} << 40;  // of one sample
constexpr uint64_t kMostBytes = uint64_t{1} << 48;   // of scratch, or kept
constexpr size_t kLeast = 2 * sizeof(uint32_t);      // of a struct: its size, and what lies beside that

Error flaw(const std::string& id, const std::string& cause) {
  return Error{"A005", cause, id + ", describe", "correct what the plugin says of itself", TENON_E_VERSION};
}

// Room for a struct that a plugin fills, with bytes behind it that it must leave alone. `size` is how much of
// the struct there is: an older host has less.
template <class T>
class Answer {
 public:
  explicit Answer(size_t size) : size_(static_cast<uint32_t>(size)) {
    std::memset(bytes_, kUntouched, sizeof bytes_);
    std::memset(bytes_, 0, size);
    std::memcpy(bytes_, &size_, sizeof size_);
  }
  T* get() { return reinterpret_cast<T*>(bytes_); }
  T value() const {
    T out;
    std::memcpy(&out, bytes_, sizeof out);
    return out;
  }
  // Whether the plugin has kept to struct_size, which is its owner's.
  bool kept() const {
    return std::memcmp(bytes_, &size_, sizeof size_) == 0 &&
           std::all_of(bytes_ + size_, bytes_ + sizeof bytes_, [](uint8_t b) { return b == kUntouched; });
  }

 private:
  static constexpr uint8_t kUntouched = 0xA5;
  static constexpr size_t kBehind = 64;
  uint32_t size_;
  alignas(T) uint8_t bytes_[sizeof(T) + kBehind];
};

// Calls ask(T*, tenon_error*): first as an older host would, with a struct that is cut short, then with all
// of it.
template <class T, class Ask>
Result<T> answer_of(const std::string& id, const char* type, Ask&& ask) {
  for (const size_t size : {kLeast, sizeof(T)}) {
    Answer<T> answer(size);
    tenon_error error = empty_abi_error();
    const tenon_code code = ask(answer.get(), &error);
    if (!answer.kept()) {
      return flaw(id,
                  fmt::format("{} of {} bytes was filled as if it were larger, or its struct_size was set: "
                              "the size is its owner's (tenon_fill keeps to it)",
                              type, size));
    }
    if (code != TENON_OK) return from_abi(code, error, id);
    if (size == sizeof(T)) return answer.value();
  }
  return flaw(id, "");
}

// Calls read() twice: what it says must be the same.
template <class Read>
auto steady(const std::string& id, Read&& read) -> decltype(read()) {
  auto first = read();
  if (!first.ok()) return first;
  auto second = read();
  if (!second.ok()) return second;
  if (*first != *second) return flaw(id, "it says something else when it is asked again");
  return first;
}

// Elements [0, count) of an array of pointers, which must all be there.
template <class T>
std::string missing_entry(const char* what, const T* const* all, uint32_t count, uint32_t most) {
  if (count > most) return fmt::format("{} {}, more than {}", count, what, most);
  if (count > 0 && all == nullptr) return fmt::format("{} {}, and NULL where they should be", count, what);
  for (uint32_t i = 0; i < count; ++i)
    if (all[i] == nullptr) return fmt::format("entry {} of the {} is NULL", i, what);
  return "";
}

bool known_dtype(uint32_t dtype) { return dtype <= TENON_U8; }

// -- optimizers -----------------------------------------------------------------------------------------

std::string flaw_of_slot(const tenon_slot_decl& slot, uint32_t i) {
  if (!is_struct_size(slot.struct_size))
    return fmt::format("slot {} has struct_size {}, which ends inside a member", i, slot.struct_size);
  if (!TENON_HAS(&slot, tenon_slot_decl, name))
    return fmt::format("slot {} has struct_size {}, which leaves no room for a name", i, slot.struct_size);
  if (slot.name == nullptr) return fmt::format("slot {} has no name", i);
  if (!is_text(slot.name) || !checkpoint::is_token(slot.name)) {
    return fmt::format("slot {} has the name {}, which no checkpoint can hold: 1 to 64 of A-Z a-z 0-9 . _ -",
                       i, shown_text(slot.name));
  }
  if (slot.dtype != TENON_SLOT_DTYPE_OF_PARAM && !known_dtype(slot.dtype))
    return fmt::format("slot '{}' has dtype {}, which none is", slot.name, slot.dtype);
  return "";
}

Result<OptimizerDeclaration> read_optimizer(const OptimizerUse& use, const tenon_optimizer_state* state) {
  TENON_TRY(const auto info,
            answer_of<tenon_optimizer_info>(use.id, "tenon_optimizer_info", [&](auto* out, auto* error) {
              return use.table->describe(state, out, error);
            }));
  std::string what = missing_entry("slots", info.slots, info.num_slots, kMostSlots);
  if (!what.empty()) return flaw(use.id, what);
  OptimizerDeclaration out{{}, info.granule, info.num_stats};
  std::set<std::string> names;
  for (uint32_t i = 0; i < info.num_slots; ++i) {
    const tenon_slot_decl& slot = *info.slots[i];
    what = flaw_of_slot(slot, i);
    if (what.empty() && !names.insert(slot.name).second)
      what = fmt::format("two slots have the name '{}'", slot.name);
    if (!what.empty()) return flaw(use.id, what);
    out.slots.push_back({slot.name, slot.dtype});
  }
  if (info.granule > TENON_GRANULE_TENSOR)
    return flaw(use.id, fmt::format("granule {}, which none is", info.granule));
  if (info.num_stats > kMostStats)
    return flaw(use.id, fmt::format("{} statistics, more than {}", info.num_stats, kMostStats));
  if (info.num_stats > 0 && use.table->stats == nullptr)
    return flaw(use.id, fmt::format("{} statistics, and no slot 'stats' that computes them", info.num_stats));
  return out;
}

// -- data -----------------------------------------------------------------------------------------------

std::string flaw_of_shape(const tenon_shape& shape) {
  if (!known_dtype(shape.dtype)) return fmt::format("has dtype {}, which none is", shape.dtype);
  if (shape.ndim > kMostDims) return fmt::format("has {} dims, more than {}", shape.ndim, kMostDims);
  if (shape.ndim > 0 && shape.dims == nullptr)
    return fmt::format("has {} dims, and NULL where they should be", shape.ndim);
  int64_t elements = 1;
  for (uint32_t d = 0; d < shape.ndim; ++d) {
    if (shape.dims[d] < 1) return fmt::format("has a dim of size {}", shape.dims[d]);
    if (shape.dims[d] > kMostElements / elements)
      return fmt::format("has more than {} elements in a sample", kMostElements);
    elements *= shape.dims[d];
  }
  return "";
}

std::string flaw_of_field(const tenon_field& field, uint32_t i) {
  if (!is_struct_size(field.struct_size))
    return fmt::format("field {} has struct_size {}, which ends inside a member", i, field.struct_size);
  if (!TENON_HAS(&field, tenon_field, shape))
    return fmt::format("field {} has struct_size {}, which leaves no room for a shape", i, field.struct_size);
  if (field.name == nullptr || *field.name == '\0') return fmt::format("field {} has no name", i);
  if (!is_text(field.name)) return fmt::format("field {} has the name {}", i, shown_text(field.name));
  std::string what = flaw_of_shape(field.shape);
  if (what.empty() && TENON_HAS(&field, tenon_field, limit) && field.limit < 0)
    what = fmt::format("has the limit {}", field.limit);
  return what.empty() ? "" : fmt::format("field '{}' {}", field.name, what);
}

Result<DataDeclaration> read_data(const Plugged<tenon_data>& plugin, tenon_dataset* dataset) {
  TENON_TRY(const auto info,
            answer_of<tenon_data_info>(plugin.id, "tenon_data_info", [&](auto* out, auto* error) {
              return plugin.table->describe(dataset, out, error);
            }));
  std::string what = missing_entry("fields", info.fields, info.num_fields, kMostFields);
  if (!what.empty()) return flaw(plugin.id, what);
  DataDeclaration out;
  for (uint32_t i = 0; i < info.num_fields; ++i) {
    const tenon_field& field = *info.fields[i];
    what = flaw_of_field(field, i);
    if (what.empty() && std::ranges::count(out.fields, field.name, &FieldDeclaration::name) > 0)
      what = fmt::format("two fields have the name '{}'", field.name);
    if (!what.empty()) return flaw(plugin.id, what);
    out.fields.push_back({field.name,
                          static_cast<Dtype>(field.shape.dtype),
                          {field.shape.dims, field.shape.dims + field.shape.ndim},
                          TENON_HAS(&field, tenon_field, limit) ? field.limit : 0});
  }
  if (info.num_samples < 0) return flaw(plugin.id, fmt::format("{} samples", info.num_samples));
  out.num_samples = info.num_samples;
  std::ranges::copy(info.digest, out.digest.begin());
  if (std::ranges::count(out.digest, 0) == static_cast<std::ptrdiff_t>(out.digest.size()))
    return flaw(plugin.id, "the digest is all zero, so that it tells no data from other data");
  return out;
}

}  // namespace

int64_t FieldDeclaration::bytes() const {
  int64_t out = size_of(dtype);
  for (const int64_t size : dims) out *= size;
  return out;
}

Result<OptimizerDeclaration> describe(const OptimizerUse& use, const tenon_optimizer_state* state) {
  return steady(use.id, [&] { return read_optimizer(use, state); });
}

Result<DataDeclaration> describe(const Plugged<tenon_data>& plugin, tenon_dataset* dataset) {
  return steady(plugin.id, [&] { return read_data(plugin, dataset); });
}

namespace {

Result<KernelNeeds> read_kernel(const Plugged<tenon_kernels>& plugin, const tenon_kernel_desc& desc) {
  const auto config = config_of<tenon_kernels_config>(plugin);
  TENON_TRY(const auto info,
            answer_of<tenon_kernel_info>(plugin.id, "tenon_kernel_info", [&](auto* out, auto* error) {
              return plugin.table->describe(&config, &desc, out, error);
            }));
  const uint32_t unknown = info.flags & ~uint32_t{TENON_KERNEL_EXACT};
  const auto of_kernel = [&](const std::string& cause) {
    return flaw(plugin.id, fmt::format("{}: {}", desc.kind, cause));
  };
  if (unknown != 0 && plugin.abi_minor <= TENON_ABI_MINOR)
    return of_kernel(fmt::format("flags {:#x}, of which {:#x} are unknown", info.flags, unknown));
  for (const auto& [name, bytes] :
       {std::pair{"workspace", info.workspace_bytes}, {"private memory", info.private_bytes}}) {
    if (bytes > kMostBytes) return of_kernel(fmt::format("{} bytes of {}", bytes, name));
  }
  if (!std::isfinite(info.seconds) || info.seconds < 0)
    return of_kernel(fmt::format("takes {} seconds", info.seconds));
  return KernelNeeds{info.workspace_bytes, info.private_bytes, (info.flags & TENON_KERNEL_EXACT) != 0,
                     plugin.id};
}

}  // namespace

Result<KernelNeeds> describe(const Plugged<tenon_kernels>& plugin, const tenon_kernel_desc& desc) {
  return steady(plugin.id, [&] { return read_kernel(plugin, desc); });
}

Result<KernelNeeds> describe(const KernelPlugins& plugins, const tenon_kernel_desc& desc) {
  auto needs = describe(plugins.of(desc.kind), desc);
  if (needs.ok() || needs.error().kind != TENON_E_UNSUPPORTED || plugins.index_of(desc.kind) == 0)
    return needs;
  Error error = std::move(needs).error();
  error.cause = plugins.of(desc.kind).id + ": " + error.cause;
  error.place = std::string("/kernels/overrides/") + desc.kind;
  error.fix = "remove it, or name a plugin that has such a kernel";
  return error;
}

}  // namespace tenon
