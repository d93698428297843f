#include "sample_state.h"

#include <random>

namespace tenon::checkpoint {
namespace {

struct SampleTensor {
  const char* name;
  uint32_t dtype;
  Shape shape;
};

// SYNC: sample_parts cuts these
const std::vector<SampleTensor>& sample_tensors() {
  static const std::vector<SampleTensor> tensors = {
      {"wte.weight", TENON_F32, {6, 8}},
      {"wte.weight/optimizer/adamw.exp_avg", TENON_F32, {6, 8}},
      {"h.0.attn.weight", TENON_BF16, {4, 6}},
      {"step", TENON_I64, {}},
      {"none", TENON_F32, {0, 3}},
      {"mask", TENON_U8, {1301}},
  };
  return tensors;
}

int64_t bytes_of(const SampleTensor& tensor) {
  return *num_elements(tensor.shape) * dtype_bytes(tensor.dtype);
}

// The bytes of a slice, cut out of the whole tensor.
TensorPart cut(const SampleTensor& tensor, const std::string& whole, const Box& box,
               std::optional<Range> flat, std::vector<std::string>& pool) {
  const Slice slice{box, flat.value_or(Range{0, num_elements(box)})};
  const int64_t element = dtype_bytes(tensor.dtype);
  std::string& bytes = pool.emplace_back(static_cast<size_t>(slice.flat.size * element), '\0');
  const Slice all{whole_box(tensor.shape), {0, *num_elements(tensor.shape)}};
  copy_overlap(all, reinterpret_cast<const std::byte*>(whole.data()), slice,
               reinterpret_cast<std::byte*>(bytes.data()), element);
  return {tensor.name, tensor.dtype, tensor.shape, box, flat, bytes.data(), bytes.size()};
}

}  // namespace

Contents sample_contents(uint64_t seed) {
  Contents contents;
  std::mt19937_64 random(seed);
  for (const SampleTensor& tensor : sample_tensors()) {
    std::string& bytes = contents[tensor.name];
    for (int64_t i = 0; i < bytes_of(tensor); ++i) bytes += static_cast<char>(random());
  }
  return contents;
}

std::vector<std::vector<TensorPart>> sample_parts(const Contents& contents, std::vector<std::string>& pool) {
  pool.reserve(64);  // parts point into it
  const auto& tensors = sample_tensors();
  const auto part = [&](size_t i, const Box& box, std::optional<Range> flat = std::nullopt) {
    return cut(tensors[i], contents.at(tensors[i].name), box, flat, pool);
  };
  const Box all = {{0, 6}, {0, 8}}, top = {{0, 4}, {0, 8}}, bottom = {{4, 2}, {0, 8}};
  return {{part(0, top), part(1, all, Range{0, 13}), part(2, {{0, 4}, {0, 6}}), part(3, {}),
           part(4, {{0, 0}, {0, 3}}), part(5, {{0, 1301}}, Range{0, 0})},
          {part(0, bottom), part(1, all, Range{13, 35}), part(4, {{0, 0}, {0, 3}}), part(5, {{0, 1301}})}};
}

Result<std::string> save_sample(Storage& storage, const std::string& root, uint64_t seed,
                                const CommitOptions& options, const std::string& nonce) {
  const Contents contents = sample_contents(seed);
  std::vector<std::string> pool;
  const auto ranks = sample_parts(contents, pool);
  const SaveId id{kRun, static_cast<int64_t>(seed)};
  TENON_TRY(const std::string tmp, begin(storage, root, id, nonce));
  std::vector<std::string> reports;
  for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
    TENON_TRY(std::string report, write_shard(storage, tmp, id, rank, ranks[rank]));
    reports.push_back(std::move(report));
  }
  return commit(storage, root, tmp, id, reports, R"({"cursor":17,"seed":1})", options);
}

Result<Contents> read_contents(Storage& storage, const std::string& directory) {
  TENON_TRY(const Checkpoint checkpoint, Checkpoint::open(storage, directory));
  Contents contents;
  for (const auto& [name, tensor] : checkpoint.manifest().tensors) {
    std::string& bytes = contents[name];
    bytes.resize(static_cast<size_t>(tensor.bytes()));
    TENON_CHECK(checkpoint.read(name, bytes.data(), bytes.size()));
  }
  return contents;
}

std::vector<std::string> entries(Storage& storage, const std::string& root) {
  auto names = storage.list(root);
  return names.ok() ? *names : std::vector<std::string>{names.error().text()};
}

}  // namespace tenon::checkpoint
