// A regular, non-empty file, read where it is needed: nothing of it counts as memory of this process. Errors
// name the path and what to do.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "tenon_sdk/plugin.hpp"

namespace tenon::data {

class File {
 public:
  explicit File(std::string path) : path_(std::move(path)) {
    const Descriptor file(*this);
    struct stat status {};
    if (::fstat(file.fd, &status) != 0) fail("cannot be examined");
    if (!S_ISREG(status.st_mode)) {
      throw sdk::Failure(TENON_E_ARGUMENT,
                         "'" + path_ + "' is not a regular file: name the files themselves");
    }
    if (status.st_size == 0)
      throw sdk::Failure(TENON_E_ARGUMENT, "'" + path_ + "' is empty: remove it from files");
    size_ = status.st_size;
  }
  int64_t size() const { return size_; }

  // Bytes [offset, offset + out.size()), which must be there. [thread-safe]
  void read(int64_t offset, std::span<uint8_t> out) const {
    const Descriptor file(*this);
    while (!out.empty()) {
      const ssize_t n = ::pread(file.fd, out.data(), out.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("cannot be read");
      if (n == 0) {
        throw sdk::Failure(TENON_E_IO, "'" + path_ + "' has become shorter than the " +
                                           std::to_string(size_) + " bytes that it had: put it back");
      }
      out = out.subspan(static_cast<size_t>(n));
      offset += n;
    }
  }

 private:
  // Open for one read only: a corpus may have more files than a process may hold open.
  struct Descriptor {
    explicit Descriptor(const File& file)
        : fd(::open(file.path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
      if (fd < 0) file.fail("cannot be opened");
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() { ::close(fd); }
    const int fd;
  };

  [[noreturn]] void fail(const char* what) const {
    const int number = errno;
    throw sdk::Failure(TENON_E_IO, "'" + path_ + "' " + what + ": " + std::generic_category().message(number),
                       "errno", number);
  }

  std::string path_;
  int64_t size_ = 0;
};

}  // namespace tenon::data
