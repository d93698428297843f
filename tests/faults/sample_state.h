// A small training state saved by two ranks: whole, cut, uneven, empty and 0-dim tensors. Values depend on
// the seed, so that states of different steps differ in every tensor.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "run/checkpoint/load.h"
#include "run/checkpoint/save.h"

namespace tenon::checkpoint {

inline constexpr const char* kRoot = "/checkpoints";
inline constexpr const char* kRun = "run-7";

// Bytes of each tensor, whole, by name.
using Contents = std::map<std::string, std::string>;

Contents sample_contents(uint64_t seed);
// As seen by ranks 0 and 1; borrows from `contents` and `pool`.
std::vector<std::vector<TensorPart>> sample_parts(const Contents& contents, std::vector<std::string>& pool);

// begin, write_shard of both ranks, commit, at the step `seed`.
Result<std::string> save_sample(Storage& storage, const std::string& root, uint64_t seed,
                                const CommitOptions& options, const std::string& nonce = "n");
// All tensors, read whole.
Result<Contents> read_contents(Storage& storage, const std::string& directory);
// Names in a directory; the text of the error when it cannot be listed.
std::vector<std::string> entries(Storage& storage, const std::string& root);

}  // namespace tenon::checkpoint
