// Session's checkpoints: which rank writes what, and what travels between ranks meanwhile.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "run/checkpoint/load.h"
#include "run/checkpoint/save.h"
#include "run/session.h"

namespace tenon {
namespace {

checkpoint::Shape shape_of(const TensorInfo& tensor) {
  checkpoint::Shape out;
  for (const Dim& dim : tensor.dims) out.push_back(dim.size);
  return out;
}

// The box of the tensor that a rank holds.
checkpoint::Box box_of(const TensorInfo& tensor, const Mesh& mesh, int64_t rank) {
  const auto at = mesh.coordinate(rank);
  checkpoint::Box box;
  for (size_t d = 0; d < tensor.dims.size(); ++d) {
    const int64_t index = index_on(mesh, at, tensor.placement.dims[d]);
    box.push_back({index * tensor.operand.dims[d], tensor.operand.dims[d]});
  }
  return box;
}

// Of the ranks that hold the same part of a tensor, one writes it: they take turns over the tensors. Those
// ranks differ only in coordinates on axes that neither shard the tensor nor cut its layout.
bool writes(const Program& program, const TensorInfo& tensor, size_t index, int64_t rank) {
  if (tensor.copy) return false;
  std::vector<bool> cuts(program.mesh.axes.size());
  for (const auto& dim : tensor.placement.dims) {
    for (AxisId axis : dim) cuts[axis] = true;
  }
  for (AxisId axis : axes_between(program.layouts[tensor.layout], 0, tensor.depth)) cuts[axis] = true;
  if (program.pipeline_axis != kNone) cuts[program.pipeline_axis] = true;
  const auto at = program.mesh.coordinate(rank);
  int64_t mine = 0, holders = 1;
  for (size_t axis = 0; axis < cuts.size(); ++axis) {
    if (cuts[axis]) continue;
    mine = mine * program.mesh.axes[axis].size + at[axis];
    holders *= program.mesh.axes[axis].size;
  }
  return static_cast<int64_t>(index) % holders == mine;
}

// The part of a recipe that a checkpoint fixes: the model and what decides which sample comes when.
Json identity(const Recipe& recipe) {
  const Json document = Json::parse(recipe.document);
  Json out;
  for (const char* key : {"seed", "precision", "batch", "context"}) out[key] = document.at(key);
  return out;
}

}  // namespace

std::string Session::meta() const {
  Json meta;
  meta["tenon"] = 1;
  meta["recipe"] = Json::parse(recipe_.document);
  meta["recipe_sha256"] = sha256_hex(recipe_.document);
  meta["mesh"] = device_->mesh().text();
  meta["attempt"] = attempt_;
  meta["samples_seen"] = steps_done_ * recipe_.batch;
  meta["data"] = {{"plugin", plugins_.data.id}, {"digest", feeder_->digest()}};
  return canonical(meta);
}

// What this rank writes: its parts of the tensors that no other rank writes.
std::vector<checkpoint::TensorPart> Session::parts_to_save() const {
  const auto rank = static_cast<int>(options_.id.rank);
  std::vector<checkpoint::TensorPart> parts;
  size_t index = 0;
  for (const auto* list : {&layout().params, &layout().states}) {
    for (const TensorInfo& tensor : *list) {
      if (!writes(layout(), tensor, index++, rank)) continue;
      const Held part = held(tensor);
      if (part.count == 0 && tensor.operand.elements() > 0) continue;
      std::optional<checkpoint::Range> range;
      if (tensor.depth > 0) range = checkpoint::Range{part.first, part.count};
      parts.push_back({tensor.name, static_cast<uint32_t>(tensor.operand.dtype), shape_of(tensor),
                       box_of(tensor, device_->mesh(), rank), range, data(tensor),
                       static_cast<uint64_t>(part.count * size_of(tensor.operand.dtype))});
    }
  }
  return parts;
}

// What rank 0 finds out for all ranks. Where it fails it has the error, and the others `failed`.
Result<std::string> Session::from_rank_0(const std::string& key, Error failed,
                                         const std::function<Result<std::string>()>& work) {
  Result<std::string> mine = std::string();
  if (options_.id.rank == 0) mine = work();
  TENON_TRY(const auto all, exchange(key, mine.ok() ? *mine : std::string()));
  if (!mine.ok()) return mine;
  if (all[0].empty()) return failed;
  return all[0];
}

Result<std::vector<std::string>> Session::exchange(const std::string& key, const std::string& mine) {
  if (options_.id.world == 1) return std::vector<std::string>{mine};
  return run::all_gather_bytes(*options_.rendezvous, key, static_cast<int>(options_.id.rank),
                               static_cast<int>(options_.id.world), mine, options_.timeout_ns);
}

Result<std::string> Session::save(checkpoint::Storage& storage, const std::string& directory,
                                  const std::string& run_id) {
  const checkpoint::SaveId id{run_id, steps_done_};
  const std::string key = fmt::format("save/{}/", saves_++);
  const auto failed = [&directory](const char* what) {
    return Error{"C002", fmt::format("rank 0 could not {} the checkpoint", what), directory, "", TENON_E_IO};
  };
  TENON_TRY(const std::string tmp, from_rank_0(key + "begin", failed("begin"), [&] {
              return checkpoint::begin(storage, directory, id, fmt::format("{}-{}", attempt_, saves_));
            }));
  auto report = checkpoint::write_shard(storage, tmp, id, options_.id.rank, parts_to_save());
  TENON_TRY(const auto reports, exchange(key + "report", report.ok() ? *report : std::string()));
  if (!report.ok()) return std::move(report).error();
  return from_rank_0(key + "commit", failed("commit"), [&] {
    checkpoint::CommitOptions options;
    options.keep = static_cast<int>(recipe_.save_keep);
    options.newer = checkpoint::NewerSteps::kRemove;
    return checkpoint::commit(storage, directory, tmp, id, reports, meta(), options);
  });
}

// Rank 0 reads every byte of the newest checkpoints until one is sound; the others are told which.
Result<std::string> Session::choose_checkpoint(checkpoint::Storage& storage, const std::string& directory) {
  const Error none{"C001", "rank 0 found no checkpoint", directory, "", TENON_E_ABORTED};
  return from_rank_0(fmt::format("resume/{}", resumes_++), none, [&]() -> Result<std::string> {
    TENON_TRY(auto latest, checkpoint::find_latest(storage, directory, checkpoint::Depth::kPayload));
    passed_over_ = std::move(latest.rejected);
    return latest.directory;
  });
}

// Refuses what would silently go on with other numbers: another model, other data, another order.
Status Session::check_same_run(const checkpoint::Manifest& manifest, const Json& meta,
                               const std::string& place) const {
  std::vector<checkpoint::ExpectedTensor> expected;
  for (const Program& program : programs_->layout().programs) {  // what all stages hold together
    for (const auto* list : {&program.params, &program.states}) {
      for (const TensorInfo& tensor : *list) {
        if (tensor.copy) continue;
        expected.push_back({tensor.name, static_cast<uint32_t>(tensor.operand.dtype), shape_of(tensor)});
      }
    }
  }
  checkpoint::Manifest saved = manifest;
  if (!programs_->train) {  // the optimizer's state, "<parameter>/<slot>", is not wanted
    std::erase_if(saved.tensors,
                  [](const auto& tensor) { return tensor.first.find('/') != std::string::npos; });
  }
  TENON_CHECK(checkpoint::match(saved, expected));
  if (!programs_->train) return {};
  const Json& before = meta.at("recipe");
  const Json now = identity(recipe_);
  for (const auto& [key, value] : now.items()) {
    if (before.at(key) == value) continue;
    return Error{"C020",
                 fmt::format("{}: checkpoint {}, recipe {}", key, before.at(key).dump(), value.dump()), place,
                 "it decides which sample comes when and must not change; number of ranks and mesh may",
                 TENON_E_CHECKPOINT};
  }
  if (meta.at("data").at("digest") != feeder_->digest()) {
    return Error{"C021", "the data is not what the checkpoint was trained on", place, "restore the files",
                 TENON_E_CHECKPOINT};
  }
  return {};
}

Result<std::string> Session::resume(checkpoint::Storage& storage, const std::string& directory) {
  TENON_TRY(const std::string chosen, choose_checkpoint(storage, directory));
  TENON_TRY(const auto loaded, checkpoint::Checkpoint::open(storage, chosen));
  TENON_TRY(const Json meta, parse_json(loaded.manifest().meta, chosen));
  TENON_CHECK(check_same_run(loaded.manifest(), meta, chosen));
  for (const auto* list : {&layout().params, &layout().states}) {
    for (const TensorInfo& tensor : *list) {
      const checkpoint::Box box = box_of(tensor, device_->mesh(), options_.id.rank);
      const Held part = held(tensor);
      const checkpoint::Slice slice{box, {part.first, part.count}};
      TENON_CHECK(loaded.read(tensor.name, slice, data(tensor),
                              static_cast<uint64_t>(part.count * size_of(tensor.operand.dtype))));
    }
  }
  steps_done_ = loaded.manifest().id.step;
  attempt_ = meta.at("attempt").get<int64_t>() + 1;
  return chosen;
}

}  // namespace tenon
