// A file system in memory that knows what is durable. File data is durable after sync(), names in a directory
// after sync_directory() of that directory, nothing else is. after_power_loss() gives what a disk may hold
// then.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "run/checkpoint/storage.h"

namespace tenon::checkpoint {

enum class Loss {
  kKeepAll,  // a killed process: the system keeps what was written
  kDropAll,  // only what was synced
  kRandom,   // of the rest, each name change and each 512-byte sector by the toss of a coin, in any order
};

class MemoryStorage : public Storage {
 public:
  MemoryStorage();
  ~MemoryStorage() override;
  MemoryStorage(MemoryStorage&&) noexcept;
  MemoryStorage& operator=(MemoryStorage&&) noexcept;

  // An independent file system, all of it durable.
  MemoryStorage after_power_loss(Loss loss, uint64_t seed = 0) const;
  // Content of a file to be looked at or damaged; NULL when there is none.
  std::string* content(const std::string& path);
  void put(const std::string& path, std::string content);
  void make_link(const std::string& path);

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

  struct Node;

 private:
  std::shared_ptr<Node> find(const std::string& path) const;
  std::shared_ptr<Node> parent(const std::string& path) const;
  Status unlink(const std::string& path, FileKind kind);

  std::shared_ptr<Node> root_;
};

}  // namespace tenon::checkpoint
