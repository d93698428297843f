#include "run/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/hash.h"

namespace tenon {
namespace {

checkpoint::Shape shape_of(const TensorInfo& tensor) {
  checkpoint::Shape out;
  for (const Dim& dim : tensor.dims) out.push_back(dim.size);
  return out;
}

// What of a recipe a checkpoint fixes beside the model: it decides which sample comes when, and which never.
struct Fixed {
  const char* name;
  const char* pointer;
};
constexpr Fixed kFixed[] = {{"seed", "/seed"},
                            {"precision", "/precision"},
                            {"batch", "/batch"},
                            {"context", "/context"},
                            {"data.valid", "/data/valid"}};

// Null: the recipe leaves it out.
Json value_of(const Json& recipe, const Fixed& fixed) {
  return recipe.value(Json::json_pointer(fixed.pointer), Json());
}

}  // namespace

std::string Checkpoints::meta() const {
  const Recipe& recipe = session_.recipe();
  Json meta;
  meta["tenon"] = 1;
  meta["recipe"] = Json::parse(recipe.document);
  meta["root"] = session_.root();
  meta["recipe_sha256"] = sha256_hex(recipe.document);
  meta["mesh"] = session_.device().mesh().text();
  meta["attempt"] = attempt_;
  meta["samples_seen"] = session_.samples_seen();
  meta["data"] = {{"plugin", session_.device().plugins().data.id}, {"digest", session_.feeder().digest()}};
  return canonical(meta);
}

// What this rank writes: its parts of the tensors that no other rank writes.
std::vector<checkpoint::TensorPart> Checkpoints::parts_to_save() const {
  const Tensors& tensors = session_.tensors();
  std::vector<checkpoint::TensorPart> parts;
  for (const auto* list : {&tensors.params(), &tensors.states()}) {
    for (const TensorInfo& tensor : *list) {
      if (!tensors.speaks_for(tensor)) continue;
      const checkpoint::Slice slice = tensors.slice(tensor);
      if (slice.flat.size == 0 && tensor.operand.elements() > 0) continue;
      std::optional<checkpoint::Range> range;
      if (tensor.depth > 0) range = slice.flat;
      parts.push_back({tensor.name, static_cast<uint32_t>(tensor.operand.dtype), shape_of(tensor), slice.box,
                       range, tensors.data(tensor),
                       static_cast<uint64_t>(slice.flat.size * size_of(tensor.operand.dtype))});
    }
  }
  return parts;
}

Status Checkpoints::check_owner(checkpoint::Storage& storage, const std::string& directory,
                                const std::string& run_id) {
  const Error failed{"C010", "rank 0 found checkpoints of another run", directory, "", TENON_E_ABORTED};
  TENON_TRY(const std::string checked,
            session_.peers().from_rank_0("owner", failed, [&]() -> Result<std::string> {
              TENON_CHECK(checkpoint::check_owner(storage, directory, run_id));
              return directory;
            }));
  return {};
}

Result<std::string> Checkpoints::save(checkpoint::Storage& storage, const std::string& directory,
                                      const std::string& run_id) {
  Peers& peers = session_.peers();
  const checkpoint::SaveId id{run_id, session_.steps_done()};
  const auto failed = [&directory](const char* what) {
    return Error{"C002", fmt::format("rank 0 could not {} the checkpoint", what), directory, "", TENON_E_IO};
  };
  TENON_TRY(const std::string tmp, peers.from_rank_0("save/begin", failed("begin"), [&] {
    return checkpoint::begin(storage, directory, id, fmt::format("{}-{}", attempt_, ++saves_));
  }));
  auto report = checkpoint::write_shard(storage, tmp, id, peers.id().rank, parts_to_save());
  TENON_TRY(const auto reports, peers.exchange("save/report", report.ok() ? *report : std::string()));
  if (!report.ok()) return std::move(report).error();
  if (const auto none = std::ranges::find(reports, ""); none != reports.end()) {
    return Error{"C002",
                 fmt::format("rank {} could not write its part of the checkpoint", none - reports.begin()),
                 directory, "", TENON_E_ABORTED};
  }
  return peers.from_rank_0("save/commit", failed("commit"), [&] {
    checkpoint::CommitOptions options;
    options.keep = static_cast<int>(session_.recipe().save_keep);
    options.newer = checkpoint::NewerSteps::kRemove;
    return checkpoint::commit(storage, directory, tmp, id, reports, meta(), options);
  });
}

// Refuses what would silently go on with other numbers: another model, other data, another order.
Status Checkpoints::check_same_run(const checkpoint::Manifest& manifest, const Json& meta,
                                   const std::string& place) const {
  std::vector<checkpoint::ExpectedTensor> expected;
  for (const Interface& one : session_.programs().layout().classes) {  // what all stages hold together
    for (const auto* list : {&one.params, &one.states}) {
      for (const Interface::Tensor& tensor : *list) {
        if (!tensor.copy) expected.push_back({tensor.name, static_cast<uint32_t>(tensor.dtype), tensor.dims});
      }
    }
  }
  checkpoint::Manifest saved = manifest;
  if (!training()) {  // the optimizer's state, "<parameter>/<slot>", is not wanted
    std::erase_if(saved.tensors,
                  [](const auto& tensor) { return tensor.first.find('/') != std::string::npos; });
  }
  TENON_CHECK(checkpoint::match(saved, expected));
  if (!training()) return {};
  const Json now = Json::parse(session_.recipe().document);
  for (const Fixed& fixed : kFixed) {
    const Json before = value_of(meta.at("recipe"), fixed), value = value_of(now, fixed);
    if (before == value) continue;
    return Error{"C020", fmt::format("{}: checkpoint {}, recipe {}", fixed.name, before.dump(), value.dump()),
                 place,
                 "it decides which sample comes when and must not change; number of ranks and mesh may",
                 TENON_E_CHECKPOINT};
  }
  if (meta.at("data").at("digest") != session_.feeder().digest()) {
    return Error{"C021", "the data is not what the checkpoint was trained on", place, "restore the files",
                 TENON_E_CHECKPOINT};
  }
  return {};
}

Status Checkpoints::read_tensors(const checkpoint::Checkpoint& from) const {
  const Tensors& tensors = session_.tensors();
  for (const auto* list : {&tensors.params(), &tensors.states()}) {
    for (const TensorInfo& tensor : *list) {
      const checkpoint::Slice slice = tensors.slice(tensor);
      TENON_CHECK(from.read(tensor.name, slice, tensors.data(tensor),
                            static_cast<uint64_t>(slice.flat.size * size_of(tensor.operand.dtype))));
    }
  }
  return {};
}

Result<bool> Checkpoints::any(checkpoint::Storage& storage, const std::string& directory) {
  const Error failed{"C002", "rank 0 could not look for checkpoints", directory, "", TENON_E_ABORTED};
  TENON_TRY(const std::string first,
            session_.peers().from_rank_0("any", failed, [&]() -> Result<std::string> {
              TENON_TRY(const auto found, checkpoint::list_checkpoints(storage, directory));
              return found.empty() ? "none" : found.front().directory;
            }));
  return first != "none";
}

// Rank 0 reads every byte of the newest checkpoints until one is sound; the others are told which.
Result<Loaded> Checkpoints::load(checkpoint::Storage& storage, const std::string& directory) {
  Loaded out;
  const Error none{"C001", "rank 0 found no checkpoint", directory, "", TENON_E_ABORTED};
  TENON_TRY(out.directory, session_.peers().from_rank_0("load", none, [&]() -> Result<std::string> {
    TENON_TRY(auto latest, checkpoint::find_latest(storage, directory, checkpoint::Depth::kPayload));
    out.passed_over = std::move(latest.rejected);
    return latest.directory;
  }));
  TENON_TRY(const auto from, checkpoint::Checkpoint::open(storage, out.directory));
  TENON_TRY(const Json meta, parse_json(from.manifest().meta, out.directory));
  TENON_CHECK(check_same_run(from.manifest(), meta, out.directory));
  TENON_CHECK(read_tensors(from));
  session_.go_on_from(from.manifest().id.step, meta.at("samples_seen").get<int64_t>());
  attempt_ = meta.at("attempt").get<int64_t>() + 1;
  out.run_id = from.manifest().id.run_id;
  return out;
}

}  // namespace tenon
