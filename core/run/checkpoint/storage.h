// Every file operation of a checkpoint goes through Storage, so that tests can fail, kill or lose any one of
// them. Paths are plain strings made by this library from the root and fixed names, never from names inside
// files. Implementations are thread-safe; one file object is used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace tenon::checkpoint {

enum class FileKind { kMissing, kFile, kDirectory, kLink, kOther };

// A file being written. The destructor closes it without reporting.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  // Reserves space from 0 to `bytes` and makes the file that long; fails when the disk is too full.
  virtual Status preallocate(uint64_t bytes) = 0;
  // Returns how many bytes were taken, which may be fewer than asked but never 0.
  virtual Result<uint64_t> write(uint64_t offset, const void* data, uint64_t bytes) = 0;
  // After a failure the state on disk is unknown: the caller gives the file up and never tries again.
  virtual Status sync() = 0;
  virtual Status close() = 0;
};

class InputFile {
 public:
  virtual ~InputFile() = default;
  virtual Result<uint64_t> size() = 0;
  // Returns how many bytes were read; fewer than asked only at the end of the file.
  virtual Result<uint64_t> read(uint64_t offset, void* destination, uint64_t bytes) = 0;
};

class Storage {
 public:
  virtual ~Storage() = default;
  virtual Status make_directory(const std::string& path) = 0;
  // Fails when anything, a link included, has that name.
  virtual Result<std::unique_ptr<OutputFile>> create(const std::string& path) = 0;
  // Fails for links and for everything that is not a regular file.
  virtual Result<std::unique_ptr<InputFile>> open(const std::string& path) = 0;
  virtual Status sync_directory(const std::string& path) = 0;
  // Atomic. Both names are in directories of one file system.
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  // Swaps two existing names in one atomic operation.
  virtual Status exchange(const std::string& one, const std::string& other) = 0;
  virtual Status remove_file(const std::string& path) = 0;
  // Fails when the directory is not empty.
  virtual Status remove_directory(const std::string& path) = 0;
  // Names in a directory, sorted, without "." and "..".
  virtual Result<std::vector<std::string>> list(const std::string& path) = 0;
  // Does not follow a link at the end of the path.
  virtual Result<FileKind> kind(const std::string& path) = 0;
};

class PosixStorage : public Storage {
 public:
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
};

// C002: "cannot <operation>: <text of errno_value>", placed at `path`.
Error storage_error(const std::string& operation, const std::string& path, int errno_value);

// Writes all bytes, going on after short writes.
Status write_all(OutputFile& file, const std::string& path, uint64_t offset, const void* data,
                 uint64_t bytes);
// Writes a file of a folder so that a crash leaves what was there, or all of it: as `<name>.partial`, which
// must not exist, and then renamed. Durable when it returns.
Status write_whole(Storage& storage, const std::string& folder, const std::string& name,
                   const std::string& text);
// Reads exactly `bytes`; C004 when the file ends before.
Status read_all(InputFile& file, const std::string& path, uint64_t offset, void* destination, uint64_t bytes);
// Makes a directory and its missing parents, each made durable.
Status make_path(Storage& storage, const std::string& path);
// Removes a file, a link (not its target) or a directory with all that it holds.
Status remove_tree(Storage& storage, const std::string& path);
// The part after the last slash.
std::string base_name(const std::string& path);
// The part before it: "." for a bare name, "/" for a child of the root.
std::string parent_of(const std::string& path);
// Without slashes at the end.
std::string trimmed(std::string path);

}  // namespace tenon::checkpoint
