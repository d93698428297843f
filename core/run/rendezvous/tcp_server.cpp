#include "run/rendezvous/tcp_server.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "run/rendezvous/auth.h"
#include "run/rendezvous/key_store.h"
#include "run/rendezvous/message.h"
#include "run/rendezvous/rendezvous.h"
#include "run/rendezvous/socket.h"

namespace tenon::run {

namespace {

constexpr int64_t kAuthNs = 5'000'000'000;
// Strangers that are connected at one time; beyond it the oldest is closed, so that they cannot keep a rank
// out.
constexpr size_t kMaxStrangers = 128;
constexpr size_t kMaxWaitingPerClient = 1024;
constexpr size_t kMaxUnsent = 4 * kMaxFrameBytes;

struct Connection {
  enum class State { kHello, kProof, kOpen };
  Connection(Fd socket, uint64_t number) : fd(std::move(socket)), id(number) {}
  Fd fd;
  uint64_t id;
  State state = State::kHello;
  Deadline auth_deadline{kAuthNs};
  std::string in;  // handshake bytes only
  size_t bytes_before_auth = 0;
  std::optional<Handshake> handshake;
  std::optional<Sealer> sealer;
  std::optional<Opener> opener;
  std::string unsent;
  size_t num_waiting = 0;
  bool dead = false;
};

struct WaitingGet {
  uint64_t connection;
  uint32_t request;
  std::string key;
  Deadline deadline;
};

}  // namespace

// Everything below `thread_` belongs to that thread, save what `mutex_` guards.
class TcpServer::Loop {
 public:
  Loop(const ServerOptions& options, Fd listener, uint16_t port, Fd wake)
      : options_(options), listener_(std::move(listener)), wake_(std::move(wake)), port_(port) {}
  ~Loop();
  void launch();
  uint16_t port() const { return port_; }
  void abort(const std::string& reason);
  ServerStats stats() const;

 private:
  void run();
  void poll_once();
  int poll_timeout_ms() const;
  void drain_wake();
  void accept_all();
  void read_from(Connection& c);
  bool read_available(Connection& c, std::string& into, size_t limit);
  void read_handshake(Connection& c);
  bool answer_hello(Connection& c);
  bool check_proof(Connection& c);
  void read_frames(Connection& c);
  void handle(Connection& c, const Request& request);
  void answer(Connection& c, const Reply& reply);
  void flush(Connection& c);
  void answer_waiting();
  std::optional<Reply> outcome(const WaitingGet& get) const;
  void drop_dead();
  void close_oldest_strangers();
  template <class Change>
  void count(Change change) {
    const std::lock_guard lock(mutex_);
    change(stats_);
  }

  const ServerOptions options_;
  const Fd listener_;
  const Fd wake_;
  const uint16_t port_;
  mutable std::mutex mutex_;
  bool stopping_ = false;                   // guarded by mutex_
  std::optional<std::string> abort_asked_;  // guarded by mutex_
  ServerStats stats_;                       // guarded by mutex_

  std::optional<std::string> aborted_;
  KeyStore store_;
  std::list<Connection> connections_;  // in order of arrival
  std::vector<WaitingGet> waiting_;
  uint64_t next_connection_ = 1;
  std::optional<Deadline> accept_pause_;  // out of descriptors: do not spin on the listener
  std::thread thread_;
};

TcpServer::Loop::~Loop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

// Signals stay with the threads of the host.
void TcpServer::Loop::launch() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void TcpServer::Loop::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!abort_asked_) abort_asked_ = reason;
  }
  eventfd_write(wake_.get(), 1);
}

ServerStats TcpServer::Loop::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void TcpServer::Loop::run() {
  while (true) {
    poll_once();
    drain_wake();
    bool stopping = false;
    {
      const std::lock_guard lock(mutex_);
      stopping = stopping_;
      aborted_ = abort_asked_;
    }
    answer_waiting();  // also when stopping: an abort just before should still reach the ranks
    if (stopping) return;
    drop_dead();
  }
}

void TcpServer::Loop::poll_once() {
  std::vector<pollfd> entries{{wake_.get(), POLLIN, 0}};
  if (accept_pause_ && accept_pause_->passed()) accept_pause_.reset();
  entries.push_back({accept_pause_ ? -1 : listener_.get(), POLLIN, 0});
  for (const Connection& c : connections_) {
    const auto events = static_cast<short>(POLLIN | (c.unsent.empty() ? 0 : POLLOUT));
    entries.push_back({c.fd.get(), events, 0});
  }
  if (poll(entries.data(), entries.size(), poll_timeout_ms()) <= 0) return;
  size_t i = 2;
  for (Connection& c : connections_) {
    const short events = entries[i++].revents;
    if ((events & POLLOUT) != 0) flush(c);
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && !c.dead) read_from(c);
  }
  if ((entries[1].revents & POLLIN) != 0) accept_all();
}

int TcpServer::Loop::poll_timeout_ms() const {
  int timeout = -1;
  const auto consider = [&](const Deadline& deadline) {
    if (deadline.never()) return;
    timeout = timeout < 0 ? deadline.poll_ms() : std::min(timeout, deadline.poll_ms());
  };
  for (const Connection& c : connections_) {
    if (c.state != Connection::State::kOpen) consider(c.auth_deadline);
  }
  for (const WaitingGet& get : waiting_) consider(get.deadline);
  if (accept_pause_) consider(*accept_pause_);
  return timeout;
}

void TcpServer::Loop::drain_wake() {
  eventfd_t ignored = 0;
  eventfd_read(wake_.get(), &ignored);
}

void TcpServer::Loop::accept_all() {
  while (true) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        accept_pause_ = Deadline(100'000'000);
      }
      if (errno != EINTR && errno != ECONNABORTED) break;
      continue;
    }
    tune_tcp(fd);
    connections_.emplace_back(std::move(fd), next_connection_++);
    count([](ServerStats& s) { ++s.accepted; });
    close_oldest_strangers();
  }
}

void TcpServer::Loop::close_oldest_strangers() {
  const auto stranger = [](const Connection& c) { return !c.dead && c.state != Connection::State::kOpen; };
  auto excess = static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(), stranger));
  for (Connection& c : connections_) {
    if (excess <= kMaxStrangers) break;
    if (!stranger(c)) continue;
    c.dead = true;
    --excess;
  }
  drop_dead();
}

void TcpServer::Loop::read_from(Connection& c) {
  if (c.state == Connection::State::kOpen) {
    read_frames(c);
  } else {
    read_handshake(c);
  }
}

// What is there, without waiting; false if nothing. Marks the connection dead at its end.
bool TcpServer::Loop::read_available(Connection& c, std::string& into, size_t limit) {
  const Status status = receive_some(c.fd, into, limit, Deadline(0));
  if (status.ok()) return true;
  c.dead = status.error().kind != TENON_E_TIMEOUT;
  return false;
}

// Reads no byte beyond the hello, or the proof: 64 in all before the other side is proven.
void TcpServer::Loop::read_handshake(Connection& c) {
  const size_t expected = c.state == Connection::State::kHello ? kHelloBytes : kMacBytes;
  const size_t before = c.in.size();
  if (!read_available(c, c.in, expected - before)) return;
  c.bytes_before_auth += c.in.size() - before;
  count([&](ServerStats& s) {
    s.max_bytes_before_auth = std::max<uint64_t>(s.max_bytes_before_auth, c.bytes_before_auth);
  });
  if (c.in.size() < expected) return;
  const bool ok = c.state == Connection::State::kHello ? answer_hello(c) : check_proof(c);
  c.in.clear();
  if (!ok) c.dead = true;
}

bool TcpServer::Loop::answer_hello(Connection& c) {
  const std::optional<uint32_t> rank = rank_of_hello(c.in);
  if (!rank || *rank >= options_.world) return false;
  const Result<std::string> nonce = random_bytes(kNonceBytes);
  if (!nonce.ok()) return false;
  c.handshake.emplace(options_.secret, options_.job, c.in, nonce.value());
  const Result<std::string> proof = c.handshake->server_proof();
  if (!proof.ok()) return false;
  c.state = Connection::State::kProof;
  c.unsent += nonce.value() + proof.value();
  flush(c);
  return true;
}

bool TcpServer::Loop::check_proof(Connection& c) {
  const Result<std::string> expected = c.handshake->client_proof();
  if (!expected.ok() || !same_mac(expected.value(), c.in)) return false;
  Result<std::string> to_server = c.handshake->key_to_server();
  Result<std::string> to_client = c.handshake->key_to_client();
  if (!to_server.ok() || !to_client.ok()) return false;
  c.opener.emplace(std::move(to_server).value());
  c.sealer.emplace(std::move(to_client).value());
  c.handshake.reset();
  c.state = Connection::State::kOpen;
  count([](ServerStats& s) { ++s.authenticated; });
  return true;
}

void TcpServer::Loop::read_frames(Connection& c) {
  std::string bytes;
  if (!read_available(c, bytes, kReadBytes)) return;
  c.opener->feed(bytes);
  while (!c.dead) {
    Result<std::optional<std::string>> payload = c.opener->next();
    if (payload.ok() && !payload->has_value()) return;
    std::optional<Request> request;
    if (payload.ok()) request = decode_request(**payload);
    if (!request) {
      count([](ServerStats& s) { ++s.bad_frames; });
      c.dead = true;
      return;
    }
    handle(c, *request);
  }
}

void TcpServer::Loop::handle(Connection& c, const Request& request) {
  if (request.kind == Request::Kind::kSet) {
    const Status status = store_.set(request.key, request.value);
    answer(c, status.ok() ? Reply{request.id, TENON_OK, "OK", ""} : error_reply(request.id, status.error()));
    return;
  }
  if (c.num_waiting >= kMaxWaitingPerClient) {
    answer(c, error_reply(request.id,
                          Error{"W027", "too many gets wait on one connection", "", "", TENON_E_STATE}));
    return;
  }
  ++c.num_waiting;
  waiting_.push_back({c.id, request.id, request.key, Deadline(request.timeout_ns)});
}

void TcpServer::Loop::answer(Connection& c, const Reply& reply) {
  Result<std::string> frame = c.sealer->seal(encode(reply));
  if (!frame.ok() || c.unsent.size() > kMaxUnsent) {
    c.dead = true;
    return;
  }
  c.unsent += frame.value();
  flush(c);
}

void TcpServer::Loop::flush(Connection& c) {
  while (!c.unsent.empty()) {
    const ssize_t n = send(c.fd.get(), c.unsent.data(), c.unsent.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      c.unsent.erase(0, static_cast<size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      c.dead = true;
      return;
    }
  }
}

std::optional<Reply> TcpServer::Loop::outcome(const WaitingGet& get) const {
  if (aborted_) return error_reply(get.request, job_aborted(*aborted_));
  if (const std::string* value = store_.find(get.key)) return Reply{get.request, TENON_OK, "OK", *value};
  if (get.deadline.passed()) return error_reply(get.request, key_timeout(get.key));
  return std::nullopt;
}

void TcpServer::Loop::answer_waiting() {
  std::map<uint64_t, Connection*> by_id;
  for (Connection& c : connections_) by_id.emplace(c.id, &c);
  std::erase_if(waiting_, [&](const WaitingGet& get) {
    const auto found = by_id.find(get.connection);
    if (found == by_id.end() || found->second->dead) return true;
    const std::optional<Reply> reply = outcome(get);
    if (!reply) return false;
    --found->second->num_waiting;
    answer(*found->second, *reply);
    return true;
  });
}

void TcpServer::Loop::drop_dead() {
  for (auto it = connections_.begin(); it != connections_.end();) {
    const bool stranger = it->state != Connection::State::kOpen;
    if (!it->dead && !(stranger && it->auth_deadline.passed())) {
      ++it;
      continue;
    }
    if (stranger) count([](ServerStats& s) { ++s.refused; });
    it = connections_.erase(it);
  }
}

TcpServer::TcpServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
TcpServer::~TcpServer() = default;

Result<std::unique_ptr<TcpServer>> TcpServer::start(const ServerOptions& options) {
  const std::string place = address_text(options.address, options.port);
  TENON_CHECK(check_secret(options.secret, place));
  if (options.world < 1) return Error{"W020", "a world of 0 ranks", place, "", TENON_E_ARGUMENT};
  TENON_TRY(Fd listener, listen_tcp(options.address, options.port));
  TENON_TRY(const uint16_t port, port_of(listener));
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return socket_error("eventfd", place, errno);
  auto loop = std::make_unique<Loop>(options, std::move(listener), port, std::move(wake));
  loop->launch();
  return std::unique_ptr<TcpServer>(new TcpServer(std::move(loop)));
}

uint16_t TcpServer::port() const { return loop_->port(); }
void TcpServer::abort(const std::string& reason) { loop_->abort(reason); }
ServerStats TcpServer::stats() const { return loop_->stats(); }

}  // namespace tenon::run
