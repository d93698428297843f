// Which checkpoints a root holds, which is the latest sound one, and whether it fits a model.
#include <algorithm>
#include <charconv>
#include <map>

#include "run/checkpoint/errors.h"
#include "run/checkpoint/load.h"

namespace tenon::checkpoint {
namespace {

constexpr const char* kStepPrefix = "step-";
constexpr size_t kShownDifferences = 5;

struct StepEntry {
  int64_t step;
  std::string directory;
};

// Newest first.
Result<std::vector<StepEntry>> step_entries(Storage& storage, const std::string& root) {
  TENON_TRY(const std::vector<std::string> names, storage.list(root));
  std::vector<StepEntry> entries;
  for (const std::string& name : names) {
    const std::optional<int64_t> step = step_of(name);
    if (step) entries.push_back({*step, trimmed(root) + "/" + name});
  }
  std::sort(entries.begin(), entries.end(),
            [](const StepEntry& one, const StepEntry& other) { return one.step > other.step; });
  return entries;
}

Result<Checkpoint> open_verified(Storage& storage, const std::string& directory, Depth depth) {
  TENON_TRY(Checkpoint checkpoint, Checkpoint::open(storage, directory));
  if (depth == Depth::kPayload) TENON_CHECK(checkpoint.verify_all());
  return checkpoint;
}

Error none_found(const std::string& root, const std::vector<Rejected>& rejected) {
  std::string cause = "no checkpoint can be loaded";
  for (const Rejected& one : rejected) {
    cause += "\n    " + base_name(one.directory) + ": " + one.error.cause + " (" + one.error.place + ")";
  }
  return Error{kNoCheckpoint, cause, root,
               rejected.empty() ? "check the folder, or start without resuming" : "", TENON_E_CHECKPOINT};
}

std::string type_text(uint32_t dtype, const Shape& shape) {
  std::string text = std::string(dtype_name(dtype)) + " [";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ",") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace

std::optional<int64_t> step_of(const std::string& directory_name) {
  const std::string prefix = kStepPrefix;
  if (!directory_name.starts_with(prefix)) return std::nullopt;
  int64_t step = -1;
  const char* end = directory_name.data() + directory_name.size();
  const auto [stop, error] = std::from_chars(directory_name.data() + prefix.size(), end, step);
  if (error != std::errc() || stop != end || step_name(step) != directory_name || step < 0)
    return std::nullopt;
  return step;
}

std::string step_name(int64_t step) { return kStepPrefix + std::to_string(step); }

Result<CheckpointInfo> find_latest(Storage& storage, const std::string& root, Depth depth, int64_t max_step) {
  TENON_TRY(const FileKind kind, storage.kind(trimmed(root)));
  if (kind == FileKind::kMissing) return none_found(root, {});
  TENON_TRY(const std::vector<StepEntry> entries, step_entries(storage, root));
  std::vector<Rejected> rejected;
  for (const StepEntry& entry : entries) {
    if (entry.step > max_step) continue;
    auto checkpoint = open_verified(storage, entry.directory, depth);
    if (!checkpoint.ok()) {
      rejected.push_back({entry.directory, checkpoint.error()});
      continue;
    }
    const Manifest& manifest = checkpoint->manifest();
    return CheckpointInfo{entry.directory, manifest.id, manifest.meta, std::move(rejected)};
  }
  return none_found(root, rejected);
}

Result<std::vector<Listing>> list_checkpoints(Storage& storage, const std::string& root) {
  std::vector<Listing> listings;
  TENON_TRY(const FileKind kind, storage.kind(trimmed(root)));
  if (kind == FileKind::kMissing) return listings;
  TENON_TRY(const std::vector<StepEntry> entries, step_entries(storage, root));
  for (const StepEntry& entry : entries) {
    Listing listing;
    listing.directory = entry.directory;
    listing.step = entry.step;
    const auto checkpoint = Checkpoint::open(storage, entry.directory);
    if (checkpoint.ok()) {
      const Manifest& manifest = checkpoint->manifest();
      listing.id = manifest.id;
      listing.meta = manifest.meta;
      listing.num_tensors = manifest.tensors.size();
      for (const Shard& shard : manifest.shards) listing.bytes += shard.bytes;
    } else {
      listing.error = checkpoint.error();
    }
    listings.push_back(std::move(listing));
  }
  return listings;
}

Status match(const Manifest& manifest, const std::vector<ExpectedTensor>& expected) {
  std::map<std::string, const ExpectedTensor*> wanted;
  for (const ExpectedTensor& tensor : expected) {
    if (!wanted.emplace(tensor.name, &tensor).second) {
      return bad_argument("tensor '" + tensor.name + "' is expected twice", "");
    }
  }
  std::vector<std::string> differences;
  for (const auto& [name, tensor] : wanted) {
    const auto found = manifest.tensors.find(name);
    const std::string model = type_text(tensor->dtype, tensor->shape);
    if (found == manifest.tensors.end()) {
      differences.push_back("'" + name + "' is missing (the model has " + model + ")");
      continue;
    }
    const std::string saved = type_text(found->second.dtype, found->second.shape);
    if (saved != model) differences.push_back("'" + name + "' is " + saved + ", the model has " + model);
  }
  for (const auto& [name, tensor] : manifest.tensors) {
    if (!wanted.contains(name)) {
      differences.push_back("'" + name + "' " + type_text(tensor.dtype, tensor.shape) +
                            " is not in the model");
    }
  }
  if (differences.empty()) return {};
  std::string cause =
      "the checkpoint is of another model: " + std::to_string(differences.size()) + " of its tensors differ";
  for (size_t i = 0; i < std::min(differences.size(), kShownDifferences); ++i)
    cause += "\n    " + differences[i];
  if (differences.size() > kShownDifferences) cause += "\n    ...";
  return Error{kOtherModel, cause,
               "step " + std::to_string(manifest.id.step) + " of run '" + manifest.id.run_id + "'",
               "resume with the recipe that the checkpoint was saved with", TENON_E_CHECKPOINT};
}

}  // namespace tenon::checkpoint
