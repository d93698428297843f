// The side of a TCP rendezvous that holds the keys: one thread, poll-based. Runs in the launcher.
// Connections that do not prove the secret within 5 s, or send anything else, are closed without an answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace tenon::run {

struct ServerOptions {
  std::string address = "127.0.0.1";  // numeric, or "localhost"
  uint16_t port = 0;                  // 0: a free one, see TcpServer::port
  std::string secret;                 // 32 bytes, see make_secret
  std::string job;                    // any text; clients of another job are refused
  uint32_t world = 1;                 // ranks are below this
};

// Counted since the start; for tests and reports.
struct ServerStats {
  uint64_t accepted = 0;       // connections
  uint64_t authenticated = 0;  // of them
  uint64_t refused = 0;        // closed before authentication
  uint64_t bad_frames = 0;     // authenticated connections closed for a forged, replayed or malformed frame
  uint64_t max_bytes_before_auth = 0;  // most bytes read from one connection before its proof was accepted
};

class TcpServer {
 public:
  // W020: the secret is missing or not 32 bytes; W021: cannot bind.
  static Result<std::unique_ptr<TcpServer>> start(const ServerOptions& options);
  // Closes all connections and joins the thread; bounded. Waiting clients get W023.
  ~TcpServer();
  TcpServer(const TcpServer&) = delete;
  TcpServer& operator=(const TcpServer&) = delete;

  uint16_t port() const;
  // Every get, waiting now or made later, fails with W025 and this reason. The first reason stays. Returns at
  // once. [thread-safe]
  void abort(const std::string& reason);
  ServerStats stats() const;  // [thread-safe]

 private:
  class Loop;
  explicit TcpServer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace tenon::run
