// Storage on a POSIX file system.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "run/checkpoint/storage.h"

namespace tenon::checkpoint {
namespace {

// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

class PosixOutput : public OutputFile {
 public:
  PosixOutput(Descriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Status preallocate(uint64_t bytes) override {
    if (bytes == 0) return {};
    const int error = ::posix_fallocate(fd_.get(), 0, static_cast<off_t>(bytes));
    if (error != 0) return storage_error("reserve " + std::to_string(bytes) + " bytes", path_, error);
    return {};
  }

  Result<uint64_t> write(uint64_t offset, const void* data, uint64_t bytes) override {
    for (;;) {
      const ssize_t done = ::pwrite(fd_.get(), data, bytes, static_cast<off_t>(offset));
      if (done >= 0) return static_cast<uint64_t>(done);
      if (errno != EINTR) return storage_error("write", path_, errno);
    }
  }

  Status sync() override {
    if (::fsync(fd_.get()) != 0) return storage_error("sync", path_, errno);
    return {};
  }

  Status close() override {
    if (fd_.close() != 0) return storage_error("close", path_, errno);
    return {};
  }

 private:
  Descriptor fd_;
  std::string path_;
};

class PosixInput : public InputFile {
 public:
  PosixInput(Descriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Result<uint64_t> size() override {
    struct stat status {};
    if (::fstat(fd_.get(), &status) != 0) return storage_error("read the size", path_, errno);
    return static_cast<uint64_t>(status.st_size);
  }

  Result<uint64_t> read(uint64_t offset, void* destination, uint64_t bytes) override {
    uint64_t done = 0;
    while (done < bytes) {
      const ssize_t n = ::pread(fd_.get(), static_cast<char*>(destination) + done, bytes - done,
                                static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return storage_error("read", path_, errno);
      if (n == 0) break;
      done += static_cast<uint64_t>(n);
    }
    return done;
  }

 private:
  Descriptor fd_;
  std::string path_;
};

struct DirectoryCloser {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

}  // namespace

Status PosixStorage::make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) != 0) return storage_error("make directory", path, errno);
  return {};
}

Result<std::unique_ptr<OutputFile>> PosixStorage::create(const std::string& path) {
  Descriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (fd.get() < 0) return storage_error("create", path, errno);
  return std::unique_ptr<OutputFile>(std::make_unique<PosixOutput>(std::move(fd), path));
}

Result<std::unique_ptr<InputFile>> PosixStorage::open(const std::string& path) {
  // O_NONBLOCK: a pipe planted under the name of a file must not stop us.
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (fd.get() < 0) return storage_error("open", path, errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return storage_error("open", path, errno);
  if (!S_ISREG(status.st_mode)) {
    return Error{"C002", "cannot open: not a regular file", path, "", TENON_E_IO};
  }
  return std::unique_ptr<InputFile>(std::make_unique<PosixInput>(std::move(fd), path));
}

Status PosixStorage::sync_directory(const std::string& path) {
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return storage_error("open directory", path, errno);
  if (::fsync(fd.get()) != 0) return storage_error("sync directory", path, errno);
  return {};
}

Status PosixStorage::rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return storage_error("rename to '" + to + "'", from, errno);
  return {};
}

Status PosixStorage::exchange(const std::string& one, const std::string& other) {
  if (::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0) return {};
  Error error = storage_error("exchange with '" + one + "'", other, errno);
  if (errno == EINVAL || errno == ENOSYS) {
    error.fix = "this file system cannot swap two names: move '" + other + "' away and save again";
  }
  return error;
}

Status PosixStorage::remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0) return storage_error("remove", path, errno);
  return {};
}

Status PosixStorage::remove_directory(const std::string& path) {
  if (::rmdir(path.c_str()) != 0) return storage_error("remove directory", path, errno);
  return {};
}

Result<std::vector<std::string>> PosixStorage::list(const std::string& path) {
  const std::unique_ptr<DIR, DirectoryCloser> directory(::opendir(path.c_str()));
  if (!directory) return storage_error("list", path, errno);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr && errno != 0) return storage_error("list", path, errno);
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<FileKind> PosixStorage::kind(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return FileKind::kMissing;
    return storage_error("look up", path, errno);
  }
  if (S_ISREG(status.st_mode)) return FileKind::kFile;
  if (S_ISDIR(status.st_mode)) return FileKind::kDirectory;
  return S_ISLNK(status.st_mode) ? FileKind::kLink : FileKind::kOther;
}

}  // namespace tenon::checkpoint
