// The folder of a run, which one process writes at a time.
#pragma once

#include <string>

#include "base/result.h"

namespace tenon::cli {

// A lock on the folder itself (flock): it ends with the last process that has it, however that ends.
class RunFolder {
 public:
  // Of a folder that exists. Error R027 where another process has it, E011.
  static Result<RunFolder> take(const std::string& path);
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&& other) noexcept;
  ~RunFolder();

  // The open folder. Who gets it (a worker) has the lock, too; closed by exec otherwise.
  int fd() const { return fd_; }
  // Error E014: the folder was moved or removed, and what was written since is not where the user looks.
  Status check_in_place() const;

 private:
  RunFolder(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_ = -1;
};

// Writes a file of the folder so that a crash or a full disk leaves the old one or the new one. Error E011.
Status write_durably(const std::string& folder, const std::string& name, const std::string& text);

}  // namespace tenon::cli
