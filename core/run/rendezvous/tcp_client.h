// The side of a TCP rendezvous that a rank holds. One connection, shared by the threads of the process;
// no thread of its own: whichever caller waits reads for all.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "run/rendezvous/auth.h"
#include "run/rendezvous/message.h"
#include "run/rendezvous/rendezvous.h"
#include "run/rendezvous/socket.h"

namespace tenon::run {

struct ClientOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;
  std::string secret;  // 32 bytes, the server's
  std::string job;     // the server's
  uint32_t rank = 0;
  int64_t connect_timeout_ns = 30'000'000'000;  // retries until then; < 0: for ever
};

class TcpClient final : public Rendezvous {
 public:
  // Connects and authenticates both sides. W020: bad secret; W021: cannot connect; W022: the server has
  // another secret or job, or refuses this rank.
  static Result<std::unique_ptr<TcpClient>> connect(const ClientOptions& options);
  Status set(const std::string& key, std::string_view value) override;
  Result<std::string> get(const std::string& key, int64_t timeout_ns) override;
  // Gives the connection up: every call, waiting now or made later, fails with W023. Returns at once.
  // [thread-safe]
  void abort();

 private:
  TcpClient(Fd socket, const std::string& place, std::string key_to_server, std::string key_to_client)
      : socket_(std::move(socket)),
        place_(place),
        sealer_(std::move(key_to_server)),
        opener_(std::move(key_to_client)) {}
  Result<Reply> call(Request request, const Deadline& deadline);
  Result<uint32_t> send_request(Request request);
  Result<Reply> wait_reply(uint32_t id, const Deadline& deadline);
  // For everyone who waits; releases the lock meanwhile.
  void read_for_all(std::unique_lock<std::mutex>& lock, const Deadline& deadline);
  // Reads once; the replies that came, or the error that ends the connection. A passed deadline is no error.
  Result<std::vector<Reply>> read_replies(const Deadline& deadline);
  Error lost(const Error& why) const;

  const Fd socket_;
  const std::string place_;
  std::mutex send_mutex_;  // guards sealer_, next_id_ and the order on the wire
  Sealer sealer_;
  uint32_t next_id_ = 1;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool reading_ = false;  // some caller is in read_replies; opener_ is then its own
  Opener opener_;
  std::map<uint32_t, Reply> replies_;  // come, not yet taken
  std::set<uint32_t> waiting_;         // ids whose caller still waits
  std::optional<Error> broken_;
};

}  // namespace tenon::run
