// A session's checkpoints: which rank writes and reads what, and what travels between ranks meanwhile.
#pragma once

#include <string>
#include <vector>

#include "run/checkpoint/load.h"
#include "run/checkpoint/save.h"
#include "run/session.h"

namespace tenon {

struct Loaded {
  std::string directory;                          // of the checkpoint; "": nothing was saved yet
  std::string run_id;                             // of the run that it belongs to
  std::vector<checkpoint::Rejected> passed_over;  // newer ones that are damaged, newest first; on rank 0
};

class Checkpoints {
 public:
  // The session is borrowed.
  explicit Checkpoints(Session& session) : session_(session) {}

  // Which start of the run this is, from 1: one more than that of the checkpoint that was loaded.
  int64_t attempt() const { return attempt_; }

  // Refuses a folder that holds another run's (C010), before a step is done in vain. Collective.
  Status check_owner(checkpoint::Storage& storage, const std::string& directory, const std::string& run_id);
  // Writes checkpoint step-<N> into `directory`. Collective. Returns its path.
  Result<std::string> save(checkpoint::Storage& storage, const std::string& directory,
                           const std::string& run_id);
  // Whether anything was ever saved in `directory`, sound or not. Collective.
  Result<bool> any(checkpoint::Storage& storage, const std::string& directory);
  // Loads the newest sound checkpoint of `directory`. Collective. Error C005 for another model.
  Result<Loaded> load(checkpoint::Storage& storage, const std::string& directory);

 private:
  bool training() const { return session_.programs().train.has_value(); }
  std::string meta() const;
  std::vector<checkpoint::TensorPart> parts_to_save() const;
  Status check_same_run(const checkpoint::Manifest& manifest, const Json& meta,
                        const std::string& place) const;
  Status read_tensors(const checkpoint::Checkpoint& from) const;

  Session& session_;
  int64_t attempt_ = 1;
  int64_t saves_ = 0;  // so far: each has a temporary folder of its own
};

}  // namespace tenon
