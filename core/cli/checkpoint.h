// The verb `checkpoint`: lists, verifies and prints checkpoints, never loading a whole one.
#pragma once

#include <string>

#include "base/result.h"

namespace tenon::cli {

struct CheckpointOptions {
  std::string path;     // folder of a run, of checkpoints, or one checkpoint
  bool verify = false;  // read every byte
  std::string tensor;   // print this one's values in short; needs one checkpoint, or takes the newest
  bool json = false;
};

// Exit code. Errors C001 and on, as docs/reference/checkpoint.md has them.
Result<int> inspect_checkpoint(const CheckpointOptions& options);

}  // namespace tenon::cli
