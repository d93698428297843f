#include "fault_storage.h"

#include <errno.h>

namespace tenon::checkpoint {

class FaultOutput : public OutputFile {
 public:
  FaultOutput(FaultStorage& faults, std::unique_ptr<OutputFile> inner, std::string path)
      : faults_(faults), inner_(std::move(inner)), path_(std::move(path)) {}
  Status preallocate(uint64_t bytes) override {
    return faults_.run<void>("preallocate", path_, true, [&] { return inner_->preallocate(bytes); });
  }
  Result<uint64_t> write(uint64_t offset, const void* data, uint64_t bytes) override {
    return faults_.write(*inner_, path_, offset, data, bytes);
  }
  Status sync() override {
    return faults_.run<void>("sync", path_, true, [&] { return inner_->sync(); });
  }
  Status close() override {
    return faults_.run<void>("close", path_, true, [&] { return inner_->close(); });
  }

 private:
  FaultStorage& faults_;
  std::unique_ptr<OutputFile> inner_;
  std::string path_;
};

class FaultInput : public InputFile {
 public:
  FaultInput(FaultStorage& faults, std::unique_ptr<InputFile> inner, std::string path)
      : faults_(faults), inner_(std::move(inner)), path_(std::move(path)) {}
  Result<uint64_t> size() override {
    return faults_.run<uint64_t>("size", path_, false, [&] { return inner_->size(); });
  }
  Result<uint64_t> read(uint64_t offset, void* destination, uint64_t bytes) override {
    return faults_.run<uint64_t>("read", path_, false,
                                 [&] { return inner_->read(offset, destination, bytes); });
  }

 private:
  FaultStorage& faults_;
  std::unique_ptr<InputFile> inner_;
  std::string path_;
};

template <class T>
Result<T> FaultStorage::run(const char* name, const std::string& path, bool changes,
                            const std::function<Result<T>()>& operation) {
  const auto number = static_cast<int64_t>(log_.size());
  log_.push_back({name, path});
  const bool now = number == plan_.at;
  const bool sticky = plan_.fault == Fault::kErrorForever && changes && number > plan_.at && plan_.at >= 0;
  const bool after_short = plan_.fault == Fault::kShortThenFail && number == plan_.at + 1 && plan_.at >= 0;
  if (sticky || after_short ||
      (now && (plan_.fault == Fault::kError || plan_.fault == Fault::kErrorForever))) {
    return storage_error(name, path, plan_.errno_value);
  }
  if (now && plan_.fault == Fault::kKill) plan_.on_kill();
  Result<T> result = operation();
  if (now && plan_.fault == Fault::kKillHalfway) plan_.on_kill();
  if (now && plan_.fault == Fault::kErrorAfter) return storage_error(name, path, plan_.errno_value);
  return result;
}

Result<uint64_t> FaultStorage::write(OutputFile& file, const std::string& path, uint64_t offset,
                                     const void* data, uint64_t bytes) {
  const bool now = static_cast<int64_t>(log_.size()) == plan_.at;
  const bool halved = now && bytes > 1 &&
                      (plan_.fault == Fault::kShortWrite || plan_.fault == Fault::kShortThenFail ||
                       plan_.fault == Fault::kKillHalfway);
  const uint64_t taken = halved ? bytes / 2 : bytes;
  return run<uint64_t>("write", path, true, [&] { return file.write(offset, data, taken); });
}

Status FaultStorage::make_directory(const std::string& path) {
  return run<void>("make_directory", path, true, [&] { return inner_.make_directory(path); });
}

Result<std::unique_ptr<OutputFile>> FaultStorage::create(const std::string& path) {
  auto file = run<std::unique_ptr<OutputFile>>("create", path, true, [&] { return inner_.create(path); });
  if (!file.ok()) return file;
  return std::unique_ptr<OutputFile>(std::make_unique<FaultOutput>(*this, std::move(file).value(), path));
}

Result<std::unique_ptr<InputFile>> FaultStorage::open(const std::string& path) {
  auto file = run<std::unique_ptr<InputFile>>("open", path, false, [&] { return inner_.open(path); });
  if (!file.ok()) return file;
  return std::unique_ptr<InputFile>(std::make_unique<FaultInput>(*this, std::move(file).value(), path));
}

Status FaultStorage::sync_directory(const std::string& path) {
  return run<void>("sync_directory", path, true, [&] { return inner_.sync_directory(path); });
}

Status FaultStorage::rename(const std::string& from, const std::string& to) {
  return run<void>("rename", from, true, [&] { return inner_.rename(from, to); });
}

Status FaultStorage::exchange(const std::string& one, const std::string& other) {
  return run<void>("exchange", other, true, [&] { return inner_.exchange(one, other); });
}

Status FaultStorage::remove_file(const std::string& path) {
  return run<void>("remove_file", path, true, [&] { return inner_.remove_file(path); });
}

Status FaultStorage::remove_directory(const std::string& path) {
  return run<void>("remove_directory", path, true, [&] { return inner_.remove_directory(path); });
}

Result<std::vector<std::string>> FaultStorage::list(const std::string& path) {
  return run<std::vector<std::string>>("list", path, false, [&] { return inner_.list(path); });
}

Result<FileKind> FaultStorage::kind(const std::string& path) {
  return run<FileKind>("kind", path, false, [&] { return inner_.kind(path); });
}

}  // namespace tenon::checkpoint
