// TCP sockets with deadlines. All are non-blocking, close-on-exec and never raise SIGPIPE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "run/rendezvous/deadline.h"

namespace tenon::run {

constexpr size_t kReadBytes = 65536;  // at most, of a socket at a time

// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// W021 with errno in words.
Error socket_error(const std::string& what, const std::string& address, int error_number);
std::string address_text(const std::string& host, uint16_t port);

// `address` is numeric or "localhost"; port 0 lets the kernel choose.
Result<Fd> listen_tcp(const std::string& address, uint16_t port);
Result<uint16_t> port_of(const Fd& socket);
// Tries every address of the host again and again until one accepts: servers may start later than clients.
Result<Fd> connect_tcp(const std::string& host, uint16_t port, const Deadline& deadline);
// Small frames at once, and a peer whose host has vanished is noticed within about 20 s.
void tune_tcp(const Fd& socket);

// Sends everything. W023 when the peer has gone, W024 after the deadline.
Status send_all(const Fd& socket, std::string_view bytes, const Deadline& deadline);
// Waits for at least one byte and appends what is there, at most `limit`. W023 at the end of the stream, W024
// after the deadline.
Status receive_some(const Fd& socket, std::string& into, size_t limit, const Deadline& deadline);

}  // namespace tenon::run
