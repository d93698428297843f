#include "cli/checkpoint.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli/progress.h"
#include "run/checkpoint/load.h"
#include "tenon/base.h"

namespace tenon::cli {
namespace {

using checkpoint::Checkpoint;

bool exists(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

std::string text_of(const checkpoint::Shape& shape) { return fmt::format("[{}]", fmt::join(shape, " ")); }

// Some numbers about a tensor, gathered a piece at a time.
struct Summary {
  double low = INFINITY, high = -INFINITY, sum = 0, squares = 0;
  int64_t count = 0, not_finite = 0;
  std::vector<double> first;

  void add(double value) {
    constexpr size_t kShown = 8;
    if (first.size() < kShown) first.push_back(value);
    ++count;
    if (!std::isfinite(value)) {
      ++not_finite;
      return;
    }
    low = std::min(low, value);
    high = std::max(high, value);
    sum += value;
    squares += value * value;
  }
};

template <class T>
void add_all(const std::vector<char>& bytes, Summary& summary) {
  const auto* values = reinterpret_cast<const T*>(bytes.data());
  for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) summary.add(static_cast<double>(values[i]));
}

Result<Summary> summarise(const Checkpoint& from, const std::string& name) {
  const auto& tensors = from.manifest().tensors;
  const auto it = tensors.find(name);
  if (it == tensors.end()) {
    return Error{"C012", "no tensor '" + name + "'", from.directory(),
                 "tenon checkpoint " + from.directory() + " lists the names", TENON_E_ARGUMENT};
  }
  const checkpoint::Tensor& tensor = it->second;
  if (tensor.dtype != TENON_F32 && tensor.dtype != TENON_F64) {
    return Error{
        "C012",
        std::string("'") + name + "' is " + checkpoint::dtype_name(tensor.dtype) + ", which is not summed up",
        from.directory(), "", TENON_E_UNSUPPORTED};
  }
  constexpr int64_t kPiece = int64_t{1} << 18;  // elements
  Summary out;
  std::vector<char> bytes;
  for (int64_t at = 0; at < tensor.elements(); at += kPiece) {
    const int64_t n = std::min(kPiece, tensor.elements() - at);
    bytes.resize(static_cast<size_t>(n * checkpoint::dtype_bytes(tensor.dtype)));
    const checkpoint::Slice slice{checkpoint::whole_box(tensor.shape), {at, n}};
    TENON_CHECK(from.read(name, slice, bytes.data(), bytes.size()));
    if (tensor.dtype == TENON_F64)
      add_all<double>(bytes, out);
    else
      add_all<float>(bytes, out);
  }
  return out;
}

Status print_tensor(const Checkpoint& from, const CheckpointOptions& options) {
  TENON_TRY(const Summary s, summarise(from, options.tensor));
  const checkpoint::Tensor& tensor = from.manifest().tensors.at(options.tensor);
  const double n = static_cast<double>(std::max<int64_t>(s.count - s.not_finite, 1));
  const double mean = s.sum / n, rms = std::sqrt(s.squares / n);
  if (options.json) {
    std::cout << Json{{"name", options.tensor},
                      {"dtype", checkpoint::dtype_name(tensor.dtype)},
                      {"shape", tensor.shape},
                      {"elements", s.count},
                      {"not_finite", s.not_finite},
                      {"min", s.low},
                      {"max", s.high},
                      {"mean", mean},
                      {"rms", rms},
                      {"first", s.first}}
                     .dump()
              << '\n';
    return {};
  }
  std::cout << fmt::format(
      "{} {}{}\nmin {:.6g}  max {:.6g}  mean {:.6g}  rms {:.6g}  not finite {}\nfirst {:.6g}\n",
      options.tensor, checkpoint::dtype_name(tensor.dtype), text_of(tensor.shape), s.low, s.high, mean, rms,
      s.not_finite, fmt::join(s.first, " "));
  return {};
}

Status print_contents(const Checkpoint& from, const CheckpointOptions& options) {
  const checkpoint::Manifest& manifest = from.manifest();
  TENON_TRY(const Json meta, parse_json(manifest.meta, from.directory()));
  int64_t bytes = 0;
  for (const auto& shard : manifest.shards) bytes += shard.bytes;
  if (options.json) {
    Json tensors = Json::object();
    for (const auto& [name, tensor] : manifest.tensors) {
      tensors[name] = {{"dtype", checkpoint::dtype_name(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"parts", tensor.parts.size()}};
    }
    std::cout
        << Json{{"step", manifest.id.step}, {"run", manifest.id.run_id},  {"shards", manifest.shards.size()},
                {"bytes", bytes},           {"verified", options.verify}, {"meta", meta},
                {"tensors", tensors}}
               .dump()
        << '\n';
    return {};
  }
  std::cout << fmt::format("step {} of run {}, mesh {}, {} samples seen\n", manifest.id.step,
                           manifest.id.run_id, meta.value("mesh", "?"),
                           meta.value("samples_seen", int64_t{0}));
  std::cout << fmt::format("{} tensors, {} in {} shards, {}\n", manifest.tensors.size(),
                           human_bytes(static_cast<uint64_t>(bytes)), manifest.shards.size(),
                           options.verify ? "every byte verified" : "structure verified");
  for (const auto& [name, tensor] : manifest.tensors) {
    std::cout << fmt::format(
        "{:<56} {:<4} {:<24} {}\n", name, checkpoint::dtype_name(tensor.dtype), text_of(tensor.shape),
        tensor.parts.size() == 1 ? "1 part" : fmt::format("{} parts", tensor.parts.size()));
  }
  return {};
}

// Newest first; a damaged one does not hide the others.
Result<int> print_list(checkpoint::Storage& storage, const std::string& root,
                       const CheckpointOptions& options) {
  TENON_TRY(const auto all, checkpoint::list_checkpoints(storage, root));
  if (all.empty())
    return Error{"C001", "no checkpoints", root, "name the folder of a run", TENON_E_CHECKPOINT};
  Json list = Json::array();
  bool damaged = false;
  for (const checkpoint::Listing& entry : all) {
    std::optional<Error> error = entry.error;
    if (!error && options.verify) {
      TENON_TRY(const Checkpoint opened, Checkpoint::open(storage, entry.directory));
      if (Status sound = opened.verify_all(); !sound.ok()) error = std::move(sound).error();
    }
    damaged |= error.has_value();
    const std::string state = error            ? "damaged: " + error->cause
                              : options.verify ? "every byte verified"
                                               : "sound";
    list.push_back({{"path", entry.directory},
                    {"step", entry.step},
                    {"bytes", entry.bytes},
                    {"tensors", entry.num_tensors},
                    {"state", state}});
    if (options.json) continue;
    std::cout << fmt::format("step {:>8}  {:>10}  {:>5} tensors  {}  {}\n", entry.step,
                             human_bytes(static_cast<uint64_t>(entry.bytes)), entry.num_tensors,
                             entry.directory, state);
  }
  if (options.json) std::cout << printable(list) << '\n';
  return damaged ? 1 : 0;
}

}  // namespace

Result<int> inspect_checkpoint(const CheckpointOptions& options) {
  checkpoint::PosixStorage storage;
  std::string path = options.path;
  if (exists(path + "/checkpoints")) path += "/checkpoints";
  const bool one = exists(path + "/" + checkpoint::kManifestFile);
  if (!one && options.tensor.empty()) return print_list(storage, path, options);
  if (!one) {
    TENON_TRY(const auto latest, checkpoint::find_latest(storage, path, checkpoint::Depth::kStructure));
    path = latest.directory;
  }
  TENON_TRY(const Checkpoint opened, Checkpoint::open(storage, path));
  if (options.verify) TENON_CHECK(opened.verify_all());
  TENON_CHECK(options.tensor.empty() ? print_contents(opened, options) : print_tensor(opened, options));
  return 0;
}

}  // namespace tenon::cli
