// commit(): merge the reports, write the manifest, verify, rename, and only then remove old checkpoints.
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "run/checkpoint/errors.h"
#include "run/checkpoint/load.h"
#include "run/checkpoint/manifest.h"
#include "run/checkpoint/save.h"
#include "run/checkpoint/shard_file.h"

namespace tenon::checkpoint {
namespace {

Error bad_report(const Report& report, std::string cause) {
  return Error{kBadReport, std::move(cause), "report of shard " + std::to_string(report.shard), "",
               TENON_E_CHECKPOINT};
}

Status merge_tensors(const Report& report, Manifest& manifest) {
  for (const auto& [name, tensor] : report.tensors) {
    const auto [at, added] = manifest.tensors.try_emplace(name, Tensor{tensor.dtype, tensor.shape, {}});
    Tensor& merged = at->second;
    if (!added && (merged.dtype != tensor.dtype || merged.shape != tensor.shape)) {
      return bad_report(report, "ranks disagree on element type or shape of tensor '" + name + "'");
    }
    for (const Part& part : tensor.parts) {
      if (part.shard != report.shard) return bad_report(report, "tensor '" + name + "' is in another shard");
      merged.parts.push_back(part);
    }
  }
  return {};
}

Result<Manifest> merge_reports(const std::vector<std::string>& texts, const std::string& attempt,
                               const SaveId& id) {
  Manifest manifest;
  manifest.id = id;
  manifest.shards.resize(texts.size());
  std::set<uint32_t> seen;
  for (const std::string& text : texts) {
    TENON_TRY(const Report report, parse_report(text));
    if (report.attempt != attempt || report.id.run_id != id.run_id || report.id.step != id.step) {
      return bad_report(report, "is of save '" + report.attempt + "' of run '" + report.id.run_id +
                                    "', not of '" + attempt + "' of run '" + id.run_id + "'");
    }
    if (report.shard >= texts.size()) {
      return bad_report(report, "there are " + std::to_string(texts.size()) + " reports: a shard is missing");
    }
    if (!seen.insert(report.shard).second) return bad_report(report, "came twice");
    manifest.shards[report.shard] = report.file;
    TENON_CHECK(merge_tensors(report, manifest));
  }
  return manifest;
}

// Validated as a reader will do it, before a byte is written.
Result<std::string> make_manifest(const std::vector<std::string>& reports, const std::string& tmp,
                                  const SaveId& id, const std::string& meta) {
  const auto document = parse_json(meta, "meta");
  if (!document.ok()) return bad_argument(document.error().cause, "meta");
  if (!document->is_object()) return bad_argument("must be a JSON object", "meta");
  TENON_TRY(Manifest manifest, merge_reports(reports, base_name(tmp), id));
  manifest.meta = meta;
  TENON_TRY(std::string text, manifest_text(manifest));
  if (text.size() > kMaxManifestBytes) return bad_argument("the manifest exceeds 256 MiB", tmp);
  TENON_TRY(const Manifest written, parse_manifest(text, kManifestFile));
  TENON_CHECK(lay_out(written, kManifestFile));
  return text;
}

Status check_newer(Storage& storage, const std::string& root, const SaveId& id, NewerSteps newer) {
  if (newer != NewerSteps::kRefuse) return {};
  TENON_TRY(const std::vector<Listing> listings, list_checkpoints(storage, root));
  for (const Listing& listing : listings) {
    if (listing.error || listing.step <= id.step) continue;
    return Error{kRootConflict, "is newer than step " + std::to_string(id.step) + ", which is to be saved",
                 listing.directory, "resume from it, or remove it", TENON_E_CHECKPOINT};
  }
  return {};
}

Status read_back(Storage& storage, const std::string& tmp, bool payload) {
  TENON_TRY(const Checkpoint checkpoint, Checkpoint::open(storage, tmp));
  if (!payload) return {};
  return checkpoint.verify_all();
}

// The commit point. When the step is already there, what it was stays behind as `tmp`.
Status publish(Storage& storage, const std::string& tmp, const std::string& target) {
  TENON_TRY(const FileKind kind, storage.kind(target));
  if (kind == FileKind::kMissing) return storage.rename(tmp, target);
  return storage.exchange(tmp, target);
}

// Names of checkpoints that are no longer needed. Older ones than the `keep`-th sound one go, sound or not.
Result<std::vector<std::string>> superfluous(Storage& storage, const std::string& root, const SaveId& id,
                                             const CommitOptions& options) {
  TENON_TRY(const std::vector<Listing> listings, list_checkpoints(storage, root));
  std::vector<std::string> names;
  int sound = 0;
  for (const Listing& listing : listings) {
    const bool newer = listing.step > id.step;
    if ((newer && options.newer == NewerSteps::kRemove) || (!newer && sound >= options.keep)) {
      names.push_back(base_name(listing.directory));
    } else if (!newer && !listing.error) {
      ++sound;
    }
  }
  return names;
}

// Each is first moved out of the way, durably, so that no half-removed one is ever seen.
Status remove_old(Storage& storage, const std::string& root, const std::string& tmp, const SaveId& id,
                  const CommitOptions& options) {
  TENON_TRY(const std::vector<std::string> names, superfluous(storage, root, id, options));
  std::vector<std::string> doomed;
  TENON_TRY(const FileKind kind, storage.kind(tmp));
  if (kind != FileKind::kMissing) doomed.push_back(tmp);
  for (const std::string& name : names) {
    doomed.push_back(tmp + "-old-" + name);
    TENON_CHECK(storage.rename(root + "/" + name, doomed.back()));
  }
  if (doomed.empty()) return {};
  TENON_CHECK(storage.sync_directory(root));
  for (const std::string& path : doomed) TENON_CHECK(remove_tree(storage, path));
  return {};
}

}  // namespace

Result<std::string> commit(Storage& storage, const std::string& root, const std::string& tmp,
                           const SaveId& id, const std::vector<std::string>& reports, const std::string& meta,
                           const CommitOptions& options) {
  TENON_CHECK(check_id(id));
  if (options.keep < 1)
    return bad_argument("keep = " + std::to_string(options.keep) + ": must be at least 1", root);
  const std::string base = trimmed(root);
  const std::string attempt = trimmed(tmp);
  if (parent_of(attempt) != base || !base_name(attempt).starts_with(kTemporaryPrefix)) {
    return bad_argument("not a temporary directory in '" + base + "'", tmp);
  }
  TENON_TRY(const std::string text, make_manifest(reports, attempt, id, meta));
  // Once more: somebody else may have saved here meanwhile.
  TENON_CHECK(check_owner(storage, base, id.run_id));
  TENON_CHECK(check_newer(storage, base, id, options.newer));
  TENON_CHECK(write_whole(storage, attempt, kManifestFile, text));
  TENON_CHECK(read_back(storage, attempt, options.verify_payload));

  const std::string target = base + "/" + step_name(id.step);
  TENON_CHECK(publish(storage, attempt, target));
  TENON_CHECK(storage.sync_directory(base));
  TENON_CHECK(read_back(storage, target, false));

  const Status cleaned = remove_old(storage, base, attempt, id, options);
  if (cleaned.ok()) return target;
  return Error{kNotCleaned,
               "the checkpoint of step " + std::to_string(id.step) +
                   " is saved, but older ones could not be removed: " + cleaned.error().cause,
               cleaned.error().place, cleaned.error().fix, cleaned.error().kind};
}

}  // namespace tenon::checkpoint
