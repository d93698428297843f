#include "run/rendezvous/tcp_client.h"

#include <sys/socket.h>

namespace tenon::run {

namespace {

// How long a peer that is alive may take for what needs no waiting.
constexpr int64_t kAnswerNs = 10'000'000'000;

Error refused(const std::string& cause, const std::string& place) {
  return Error{"W022", cause, place, "start all ranks of a job with the same secret and job id",
               TENON_E_PEER};
}

Result<std::string> receive_exactly(const Fd& socket, size_t size, const Deadline& deadline) {
  Result<std::string> bytes{std::string()};
  while (bytes->size() < size) TENON_CHECK(receive_some(socket, *bytes, size - bytes->size(), deadline));
  return bytes;
}

struct Keys {
  std::string to_server, to_client;
};

Result<Keys> authenticate(const Fd& socket, const ClientOptions& options, const std::string& place,
                          const Deadline& deadline) {
  TENON_TRY(const std::string hello, make_hello(options.rank));
  TENON_CHECK(send_all(socket, hello, deadline));
  auto reply = receive_exactly(socket, kReplyBytes, deadline);
  if (!reply.ok() && reply.error().kind == TENON_E_PEER) {
    return refused("the server closed the connection at the greeting: is rank " +
                       std::to_string(options.rank) + " below its world, and is it a rendezvous server?",
                   place);
  }
  if (!reply.ok()) return std::move(reply).error();
  const Handshake handshake(options.secret, options.job, hello, reply->substr(0, kNonceBytes));
  TENON_TRY(const std::string expected, handshake.server_proof());
  if (!same_mac(expected, reply->substr(kNonceBytes))) {
    return refused("the server does not prove that it holds our secret and job id '" + options.job + "'",
                   place);
  }
  TENON_TRY(const std::string proof, handshake.client_proof());
  TENON_CHECK(send_all(socket, proof, deadline));
  TENON_TRY(std::string to_server, handshake.key_to_server());
  TENON_TRY(std::string to_client, handshake.key_to_client());
  return Keys{std::move(to_server), std::move(to_client)};
}

Error error_of(const Reply& reply, const std::string& place) {
  return Error{reply.code, reply.body, place, "", reply.kind};
}

}  // namespace

Result<std::unique_ptr<TcpClient>> TcpClient::connect(const ClientOptions& options) {
  const std::string place = address_text(options.host, options.port);
  TENON_CHECK(check_secret(options.secret, place));
  const Deadline deadline(options.connect_timeout_ns);
  TENON_TRY(Fd socket, connect_tcp(options.host, options.port, deadline));
  // Someone else may listen there and say nothing.
  const Deadline greeting(kAnswerNs);
  TENON_TRY(Keys keys, authenticate(socket, options, place, greeting));
  return std::unique_ptr<TcpClient>(
      new TcpClient(std::move(socket), place, std::move(keys.to_server), std::move(keys.to_client)));
}

Error TcpClient::lost(const Error& why) const {
  return Error{why.code, "rendezvous server: " + why.cause, place_, why.fix, why.kind};
}

Status TcpClient::set(const std::string& key, std::string_view value) {
  Request request;
  request.kind = Request::Kind::kSet;
  request.key = key;
  request.value = value;
  TENON_TRY(const Reply reply, call(std::move(request), Deadline(kAnswerNs)));
  if (reply.kind != TENON_OK) return error_of(reply, place_);
  return {};
}

Result<std::string> TcpClient::get(const std::string& key, int64_t timeout_ns) {
  Request request;
  request.key = key;
  request.timeout_ns = timeout_ns;
  // The server watches the timeout; ours only covers a server that is stopped.
  constexpr int64_t kLongestNs = INT64_MAX - kAnswerNs;
  const Deadline deadline(timeout_ns < 0 ? -1 : std::min(timeout_ns, kLongestNs) + kAnswerNs);
  TENON_TRY(Reply reply, call(std::move(request), deadline));
  if (reply.kind != TENON_OK) return error_of(reply, place_);
  return std::move(reply.body);
}

void TcpClient::abort() { shutdown(socket_.get(), SHUT_RDWR); }

Result<Reply> TcpClient::call(Request request, const Deadline& deadline) {
  if (request.key.empty() || request.key.size() > kMaxKeyBytes || request.value.size() > kMaxValueBytes) {
    return Error{"W027",
                 "a key of " + std::to_string(request.key.size()) + " bytes (1 to " +
                     std::to_string(kMaxKeyBytes) + ") with a value of " +
                     std::to_string(request.value.size()) + " bytes (at most " +
                     std::to_string(kMaxValueBytes) + ")",
                 place_, "exchange bulk data through the communication plugin", TENON_E_ARGUMENT};
  }
  TENON_TRY(const uint32_t id, send_request(std::move(request)));
  return wait_reply(id, deadline);
}

Result<uint32_t> TcpClient::send_request(Request request) {
  const std::lock_guard order(send_mutex_);
  request.id = next_id_++;
  {
    const std::lock_guard lock(mutex_);
    if (broken_) return *broken_;
    waiting_.insert(request.id);
  }
  TENON_TRY(const std::string frame, sealer_.seal(encode(request)));
  const Status sent = send_all(socket_, frame, Deadline(kAnswerNs));
  if (sent.ok()) return request.id;
  // Part of a frame may be on the wire: nothing more can follow it.
  const std::lock_guard lock(mutex_);
  waiting_.erase(request.id);
  if (!broken_) broken_ = lost(sent.error());
  changed_.notify_all();
  return *broken_;
}

Result<Reply> TcpClient::wait_reply(uint32_t id, const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto found = replies_.find(id);
    if (found != replies_.end()) {
      Reply reply = std::move(found->second);
      replies_.erase(found);
      return reply;
    }
    if (broken_) return *broken_;
    if (deadline.passed()) {
      waiting_.erase(id);
      return Error{"W024", "the rendezvous server does not answer", place_, "is its process stopped?",
                   TENON_E_TIMEOUT};
    }
    if (reading_) {
      if (deadline.never()) {
        changed_.wait(lock);
      } else {
        changed_.wait_until(lock, deadline.at());
      }
      continue;
    }
    read_for_all(lock, deadline);
  }
}

void TcpClient::read_for_all(std::unique_lock<std::mutex>& lock, const Deadline& deadline) {
  reading_ = true;
  lock.unlock();
  Result<std::vector<Reply>> came = read_replies(deadline);
  lock.lock();
  reading_ = false;
  if (!came.ok()) {
    broken_ = lost(came.error());
  } else {
    for (Reply& reply : *came) {
      if (waiting_.erase(reply.id) > 0) replies_.emplace(reply.id, std::move(reply));
    }
  }
  changed_.notify_all();  // also hands over the reading
}

Result<std::vector<Reply>> TcpClient::read_replies(const Deadline& deadline) {
  std::vector<Reply> out;
  std::string bytes;
  const Status status = receive_some(socket_, bytes, kReadBytes, deadline);
  if (!status.ok() && status.error().kind == TENON_E_TIMEOUT) return out;
  if (!status.ok()) return status.error();
  opener_.feed(bytes);
  while (true) {
    TENON_TRY(const std::optional<std::string> payload, opener_.next());
    if (!payload) return out;
    std::optional<Reply> reply = decode_reply(*payload);
    if (!reply)
      return Error{"W027", "a malformed reply", "", "do all ranks run the same version?", TENON_E_PEER};
    out.push_back(std::move(*reply));
  }
}

}  // namespace tenon::run
