#include "run/rendezvous/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

namespace tenon::run {

namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Result<AddressList> resolve(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (rc != 0) {
    return Error{"W020", std::string("cannot resolve the address: ") + gai_strerror(rc),
                 address_text(host, port), "give a numeric address or a known host name", TENON_E_ARGUMENT};
  }
  return AddressList(found, &freeaddrinfo);
}

Fd open_socket(const addrinfo& address) {
  return Fd(
      socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, address.ai_protocol));
}

// Waits for `events`; false after the deadline.
bool wait_for(const Fd& fd, short events, const Deadline& deadline) {
  while (true) {
    pollfd entry{fd.get(), events, 0};
    const int rc = poll(&entry, 1, deadline.poll_ms());
    if (rc > 0) return true;
    if (rc == 0 && deadline.passed()) return false;
    if (rc < 0 && errno != EINTR) return true;  // the following call reports the cause
  }
}

// 0, or the errno of one attempt.
int try_connect(const Fd& fd, const addrinfo& address, const Deadline& deadline) {
  if (!fd) return errno;
  if (connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_for(fd, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

Error peer_gone(const std::string& how) {
  return Error{"W023", "the connection is lost: " + how, "rendezvous", "look at the other side's output",
               TENON_E_PEER};
}

Error too_slow(const std::string& what) {
  return Error{"W024", what + " took too long", "rendezvous", "is the other side stopped or overloaded?",
               TENON_E_TIMEOUT};
}

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

Error socket_error(const std::string& what, const std::string& address, int error_number) {
  return Error{"W021", what + ": " + std::generic_category().message(error_number), address, "", TENON_E_IO};
}

std::string address_text(const std::string& host, uint16_t port) {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<Fd> listen_tcp(const std::string& address, uint16_t port) {
  const int numeric = address == "localhost" ? 0 : AI_NUMERICHOST;
  TENON_TRY(const AddressList list, resolve(address, port, numeric | AI_PASSIVE));
  Fd fd = open_socket(*list);
  if (!fd) return socket_error("cannot open a socket", address_text(address, port), errno);
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd.get(), list->ai_addr, list->ai_addrlen) != 0) {
    Error error = socket_error("cannot bind", address_text(address, port), errno);
    error.fix = "choose another address or port; port 0 takes a free one";
    return error;
  }
  if (listen(fd.get(), 1024) != 0) return socket_error("cannot listen", address_text(address, port), errno);
  return fd;
}

Result<uint16_t> port_of(const Fd& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return socket_error("getsockname", "rendezvous", errno);
  }
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

Result<Fd> connect_tcp(const std::string& host, uint16_t port, const Deadline& deadline) {
  TENON_TRY(const AddressList list, resolve(host, port, 0));
  while (true) {
    int last_error = 0;
    for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
      Fd fd = open_socket(*entry);
      last_error = try_connect(fd, *entry, deadline);
      if (last_error == 0) {
        tune_tcp(fd);
        return fd;
      }
    }
    if (deadline.passed()) {
      Error error = socket_error("cannot connect", address_text(host, port), last_error);
      error.fix = "is rank 0's launcher running, and is this its address?";
      return error;
    }
    const Deadline pause(20'000'000);
    poll(nullptr, 0, std::min(pause.poll_ms(), deadline.never() ? 20 : deadline.poll_ms()));
  }
}

void tune_tcp(const Fd& socket) {
  struct Setting {
    int level, name, value;
  };
  constexpr Setting kSettings[] = {
      {IPPROTO_TCP, TCP_NODELAY, 1},   {SOL_SOCKET, SO_KEEPALIVE, 1}, {IPPROTO_TCP, TCP_KEEPIDLE, 5},
      {IPPROTO_TCP, TCP_KEEPINTVL, 5}, {IPPROTO_TCP, TCP_KEEPCNT, 3}, {IPPROTO_TCP, TCP_USER_TIMEOUT, 20000},
  };
  for (const Setting& s : kSettings) setsockopt(socket.get(), s.level, s.name, &s.value, sizeof s.value);
}

Status send_all(const Fd& socket, std::string_view bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const ssize_t n = send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(socket, POLLOUT, deadline)) return too_slow("sending");
    } else if (errno != EINTR) {
      return peer_gone(std::generic_category().message(errno));
    }
  }
  return {};
}

Status receive_some(const Fd& socket, std::string& into, size_t limit, const Deadline& deadline) {
  const size_t before = into.size();
  while (true) {
    into.resize(before + limit);
    const ssize_t n = recv(socket.get(), into.data() + before, limit, 0);
    const int error = errno;
    into.resize(before + (n > 0 ? static_cast<size_t>(n) : 0));
    if (n > 0) return {};
    if (n == 0) return peer_gone("closed by the other side");
    if (error == EAGAIN || error == EWOULDBLOCK) {
      if (!wait_for(socket, POLLIN, deadline)) return too_slow("receiving");
    } else if (error != EINTR) {
      return peer_gone(std::generic_category().message(error));
    }
  }
}

}  // namespace tenon::run
