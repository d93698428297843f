// Error codes of checkpoints, documented in docs/reference/checkpoint.md.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace tenon::checkpoint {

inline constexpr const char* kNoCheckpoint = "C001";
inline constexpr const char* kStorageFailed = "C002";
inline constexpr const char* kBadManifest = "C003";
inline constexpr const char* kBadShard = "C004";
inline constexpr const char* kOtherModel = "C005";
inline constexpr const char* kBadChunk = "C006";
inline constexpr const char* kBadArgument = "C007";
inline constexpr const char* kNotCovered = "C008";
inline constexpr const char* kBadReport = "C009";
inline constexpr const char* kRootConflict = "C010";
inline constexpr const char* kNotCleaned = "C011";
inline constexpr const char* kNoSuchTensor = "C012";
inline constexpr const char* kOtherVersion = "C013";

inline Error damaged(const char* code, std::string cause, std::string place) {
  return Error{code, std::move(cause), std::move(place),
               "use an older checkpoint or restore this one from a copy", TENON_E_CHECKPOINT};
}

inline Error bad_argument(std::string cause, std::string place) {
  return Error{kBadArgument, std::move(cause), std::move(place), "", TENON_E_ARGUMENT};
}

}  // namespace tenon::checkpoint
