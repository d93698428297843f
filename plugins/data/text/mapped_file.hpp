// A regular, non-empty file mapped read-only. Errors name the path and what to do.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
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

class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const Descriptor file(path);
    struct stat status {};
    if (::fstat(file.fd, &status) != 0) fail(path, "cannot be examined");
    if (!S_ISREG(status.st_mode)) {
      throw sdk::Failure(TENON_E_ARGUMENT, "'" + path + "' is not a regular file: name the files themselves");
    }
    if (status.st_size == 0)
      throw sdk::Failure(TENON_E_ARGUMENT, "'" + path + "' is empty: remove it from files");
    size_ = static_cast<size_t>(status.st_size);
    address_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (address_ == MAP_FAILED) fail(path, "cannot be mapped");
  }
  MappedFile(MappedFile&& other) noexcept
      : address_(std::exchange(other.address_, MAP_FAILED)), size_(std::exchange(other.size_, 0)) {}
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile() {
    if (address_ != MAP_FAILED) ::munmap(address_, size_);
  }
  std::span<const uint8_t> bytes() const { return {static_cast<const uint8_t*>(address_), size_}; }

 private:
  struct Descriptor {
    explicit Descriptor(const std::string& path)
        : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
      if (fd < 0) fail(path, "cannot be opened");
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() { ::close(fd); }
    const int fd;
  };

  [[noreturn]] static void fail(const std::string& path, const char* what) {
    const int number = errno;
    throw sdk::Failure(TENON_E_IO, "'" + path + "' " + what + ": " + std::generic_category().message(number),
                       "errno", number);
  }

  void* address_ = MAP_FAILED;
  size_t size_ = 0;
};

}  // namespace tenon::data
