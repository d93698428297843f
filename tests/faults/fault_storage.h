// Counts the operations of another Storage and makes one of them go wrong.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "run/checkpoint/storage.h"

namespace tenon::checkpoint {

enum class Fault {
  kNone,
  kKill,           // on_kill() before the operation
  kKillHalfway,    // writes: half of it, then on_kill(); other operations: all of it, then on_kill()
  kError,          // fails with `errno_value` and does nothing
  kErrorForever,   // so do all operations that change something from then on
  kErrorAfter,     // takes effect and still fails
  kShortWrite,     // writes: takes half and says so
  kShortThenFail,  // the same, and the operation after it fails
};

struct FaultPlan {
  Fault fault = Fault::kNone;
  int64_t at = -1;  // number of the operation, from 0
  int errno_value = 0;
  std::function<void()> on_kill;
};

struct Operation {
  std::string name;  // "write"
  std::string path;
};

class FaultStorage : public Storage {
 public:
  FaultStorage(Storage& inner, FaultPlan plan) : inner_(inner), plan_(std::move(plan)) {}

  bool reached() const { return static_cast<int64_t>(log_.size()) > plan_.at; }
  const std::vector<Operation>& log() const { return log_; }
  const Operation& faulty() const { return log_.at(static_cast<size_t>(plan_.at)); }

  Status make_directory(const std::string& path) override;
  Result<std::unique_ptr<OutputFile>> create(const std::string& path) override;
  Result<std::unique_ptr<InputFile>> open(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status exchange(const std::string& one, const std::string& other) override;
  Status remove_file(const std::string& path) override;
  Status remove_directory(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override;
  Result<FileKind> kind(const std::string& path) override;

 private:
  friend class FaultOutput;
  friend class FaultInput;
  // Runs `operation` with the fault, if it is the one.
  template <class T>
  Result<T> run(const char* name, const std::string& path, bool changes,
                const std::function<Result<T>()>& operation);
  Result<uint64_t> write(OutputFile& file, const std::string& path, uint64_t offset, const void* data,
                         uint64_t bytes);

  Storage& inner_;
  FaultPlan plan_;
  std::vector<Operation> log_;
};

}  // namespace tenon::checkpoint
