// Who gets in, what ends a connection, and what a client sees when its server goes.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "run/rendezvous/auth.h"
#include "run/rendezvous/message.h"
#include "run/rendezvous/socket.h"
#include "run/rendezvous/tcp_client.h"
#include "run/rendezvous/tcp_server.h"

namespace tenon::run {
namespace {

// -1 until someone connects.
int accept_one(const Fd& listener) {
  pollfd entry{listener.get(), POLLIN, 0};
  poll(&entry, 1, 100);
  return accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

constexpr int64_t kSecond = 1'000'000'000;
const std::string kSecret(kSecretBytes, 's');

ServerOptions server_options() {
  ServerOptions options;
  options.secret = kSecret;
  options.job = "job 7";
  options.world = 4;
  return options;
}

class Tcp : public testing::Test {
 protected:
  void SetUp() override { server_ = TcpServer::start(server_options()).value(); }
  ClientOptions client_options(uint32_t rank = 0) const {
    ClientOptions options;
    options.port = server_->port();
    options.secret = kSecret;
    options.job = "job 7";
    options.rank = rank;
    options.connect_timeout_ns = 5 * kSecond;
    return options;
  }
  Fd raw() const { return connect_tcp("127.0.0.1", server_->port(), Deadline(5 * kSecond)).value(); }
  // The bytes until the server closes.
  static std::string read_to_end(const Fd& fd) {
    std::string all;
    while (receive_some(fd, all, 4096, Deadline(10 * kSecond)).ok()) {
    }
    return all;
  }
  // Stats are counted by the server's own thread: wait for them.
  template <class Condition>
  bool soon(Condition condition) const {
    for (int i = 0; i < 1000; ++i) {
      if (condition(server_->stats())) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  // The server goes on to serve honest ranks.
  void expect_alive() {
    const auto client = TcpClient::connect(client_options());
    ASSERT_TRUE(client.ok()) << client.error().text();
    const std::string key = "alive" + std::to_string(server_->stats().accepted);
    ASSERT_TRUE((*client)->set(key, "yes").ok());
    EXPECT_EQ((*client)->get(key, 0).value(), "yes");
  }
  std::unique_ptr<TcpServer> server_;
};

// A hand-made peer that has passed authentication, to send what a client never would.
struct RawSession {
  Fd fd;
  Sealer sealer;
};
RawSession raw_session(Fd fd, const std::string& secret) {
  const std::string hello = make_hello(0).value();
  EXPECT_TRUE(send_all(fd, hello, Deadline(kSecond)).ok());
  std::string reply;
  while (reply.size() < kReplyBytes) {
    if (!receive_some(fd, reply, kReplyBytes - reply.size(), Deadline(5 * kSecond)).ok()) break;
  }
  EXPECT_EQ(reply.size(), kReplyBytes);
  const Handshake handshake(secret, "job 7", hello, reply.substr(0, kNonceBytes));
  EXPECT_TRUE(send_all(fd, handshake.client_proof().value(), Deadline(kSecond)).ok());
  return {std::move(fd), Sealer(handshake.key_to_server().value())};
}

std::string set_request(uint32_t id, const std::string& key) {
  Request request;
  request.kind = Request::Kind::kSet;
  request.id = id;
  request.key = key;
  return encode(request);
}

TEST_F(Tcp, a_client_with_another_secret_is_told_so) {
  ClientOptions options = client_options();
  options.secret = std::string(kSecretBytes, 'x');
  const auto client = TcpClient::connect(options);
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.error().code, "W022");
  EXPECT_NE(client.error().cause.find("secret and job id 'job 7'"), std::string::npos);
  EXPECT_TRUE(soon([](const ServerStats& s) { return s.refused == 1; }));
  EXPECT_EQ(server_->stats().authenticated, 0u);
  expect_alive();
}

TEST_F(Tcp, a_client_of_another_job_is_refused) {
  ClientOptions options = client_options();
  options.job = "job 8";
  EXPECT_EQ(TcpClient::connect(options).error().code, "W022");
  EXPECT_EQ(server_->stats().authenticated, 0u);
}

TEST_F(Tcp, a_rank_outside_the_world_is_refused) {
  const auto client = TcpClient::connect(client_options(4));
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.error().code, "W022");
  EXPECT_NE(client.error().cause.find("rank 4"), std::string::npos);
}

TEST_F(Tcp, a_peer_that_ignores_the_servers_proof_cannot_prove_itself_without_the_secret) {
  const RawSession session = raw_session(raw(), std::string(kSecretBytes, 'x'));
  EXPECT_EQ(read_to_end(session.fd), "");
  EXPECT_TRUE(soon([](const ServerStats& s) { return s.refused == 1; }));
  EXPECT_EQ(server_->stats().authenticated, 0u);
}

TEST_F(Tcp, the_proof_of_another_connection_does_not_open_this_one) {
  // Learn a valid hello and proof by doing them, then send the same 64 bytes again.
  const std::string hello = make_hello(0).value();
  std::string proof;
  {
    const Fd fd = raw();
    ASSERT_TRUE(send_all(fd, hello, Deadline(kSecond)).ok());
    std::string reply;
    while (reply.size() < kReplyBytes) {
      ASSERT_TRUE(receive_some(fd, reply, kReplyBytes - reply.size(), Deadline(5 * kSecond)).ok());
    }
    proof = Handshake(kSecret, "job 7", hello, reply.substr(0, kNonceBytes)).client_proof().value();
    ASSERT_TRUE(send_all(fd, proof, Deadline(kSecond)).ok());
    ASSERT_TRUE(soon([](const ServerStats& s) { return s.authenticated == 1; }));
  }
  const Fd again = raw();
  ASSERT_TRUE(send_all(again, hello + proof, Deadline(kSecond)).ok());
  EXPECT_EQ(read_to_end(again).size(), kReplyBytes);
  EXPECT_TRUE(soon([](const ServerStats& s) { return s.refused == 1; }));
  EXPECT_EQ(server_->stats().authenticated, 1u);
}

TEST_F(Tcp, ten_thousand_garbage_bytes_are_dropped_after_at_most_64) {
  for (int i = 0; i < 20; ++i) {
    const Fd fd = raw();
    std::string garbage =
        i % 2 == 0 ? std::string(10000, '\xab') : make_hello(0).value() + std::string(9968, '\0');
    (void)send_all(fd, garbage, Deadline(kSecond));
    read_to_end(fd);
  }
  EXPECT_TRUE(soon([](const ServerStats& s) { return s.refused == 20; }));
  EXPECT_LE(server_->stats().max_bytes_before_auth, 64u);
  EXPECT_GT(server_->stats().max_bytes_before_auth, 0u);
  EXPECT_EQ(server_->stats().authenticated, 0u);
  expect_alive();
}

TEST_F(Tcp, silent_strangers_do_not_keep_ranks_out) {
  std::vector<Fd> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(raw());
  expect_alive();
  EXPECT_TRUE(soon([](const ServerStats& s) { return s.refused >= 300 - 129; }));
}

TEST_F(Tcp, a_replayed_frame_ends_the_connection_and_changes_nothing) {
  RawSession session = raw_session(raw(), kSecret);
  const std::string frame = session.sealer.seal(set_request(1, "first")).value();
  ASSERT_TRUE(send_all(session.fd, frame, Deadline(kSecond)).ok());
  ASSERT_TRUE(send_all(session.fd, frame, Deadline(kSecond)).ok());
  const std::string next = session.sealer.seal(set_request(2, "after")).value();
  (void)send_all(session.fd, next, Deadline(kSecond));
  read_to_end(session.fd);
  EXPECT_TRUE(soon([](const ServerStats& s) { return s.bad_frames == 1; }));
  const auto client = TcpClient::connect(client_options()).value();
  EXPECT_TRUE(client->get("first", 0).ok());
  EXPECT_EQ(client->get("after", 0).error().code, "W024");
}

TEST_F(Tcp, a_changed_byte_in_a_frame_ends_the_connection) {
  RawSession session = raw_session(raw(), kSecret);
  std::string frame = session.sealer.seal(set_request(1, "key")).value();
  frame[10] = static_cast<char>(frame[10] ^ 1);
  ASSERT_TRUE(send_all(session.fd, frame, Deadline(kSecond)).ok());
  read_to_end(session.fd);
  EXPECT_TRUE(soon([](const ServerStats& s) { return s.bad_frames == 1; }));
  EXPECT_EQ(TcpClient::connect(client_options()).value()->get("key", 0).error().code, "W024");
}

TEST_F(Tcp, a_frame_beyond_the_limit_is_refused_from_its_length_alone) {
  RawSession session = raw_session(raw(), kSecret);
  const auto size = static_cast<uint32_t>(kMaxFrameBytes + 1);
  ASSERT_TRUE(send_all(session.fd, {reinterpret_cast<const char*>(&size), 4}, Deadline(kSecond)).ok());
  read_to_end(session.fd);  // ends although the frame never comes
  EXPECT_TRUE(soon([](const ServerStats& s) { return s.bad_frames == 1; }));
}

TEST_F(Tcp, an_authentic_but_malformed_request_ends_the_connection) {
  for (const std::string& bytes :
       {std::string(), std::string("\x09"), std::string(15, '\x01'), std::string(15, '\xff')}) {
    RawSession session = raw_session(raw(), kSecret);
    ASSERT_TRUE(send_all(session.fd, session.sealer.seal(bytes).value(), Deadline(kSecond)).ok());
    read_to_end(session.fd);
  }
  EXPECT_TRUE(soon([](const ServerStats& s) { return s.bad_frames == 4; }));
  expect_alive();
}

TEST_F(Tcp, the_death_of_the_server_ends_a_waiting_get_and_all_later_calls) {
  const auto client = TcpClient::connect(client_options()).value();
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    server_.reset();
  });
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto got = client->get("never", -1);
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.error().code, "W023") << got.error().text();
    EXPECT_EQ(got.error().kind, TENON_E_PEER);
    EXPECT_NE(got.error().place.find("127.0.0.1:"), std::string::npos);
  }
  EXPECT_FALSE(client->set("k", "v").ok());
  killer.join();
}

TEST_F(Tcp, an_abort_just_before_the_servers_end_still_reaches_a_waiting_rank) {
  const auto client = TcpClient::connect(client_options()).value();
  ASSERT_TRUE(client->set("asked", "").ok());
  std::thread waiter([&] { EXPECT_EQ(client->get("never", -1).error().code, "W025"); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  server_->abort("over");
  server_.reset();
  waiter.join();
}

TEST_F(Tcp, a_client_that_goes_away_while_it_waits_is_forgotten) {
  {
    RawSession session = raw_session(raw(), kSecret);
    Request request;
    request.key = "later";
    request.timeout_ns = -1;
    ASSERT_TRUE(send_all(session.fd, session.sealer.seal(encode(request)).value(), Deadline(kSecond)).ok());
  }
  const auto client = TcpClient::connect(client_options()).value();
  ASSERT_TRUE(client->set("later", "x").ok());
  EXPECT_EQ(client->get("later", 0).value(), "x");
}

TEST(TcpServer, a_missing_or_short_secret_is_refused_on_any_address) {
  for (const char* address : {"127.0.0.1", "0.0.0.0", "::"}) {
    for (const size_t size : {size_t{0}, size_t{31}, size_t{33}}) {
      ServerOptions options = server_options();
      options.address = address;
      options.secret = std::string(size, 's');
      const auto server = TcpServer::start(options);
      ASSERT_FALSE(server.ok());
      EXPECT_EQ(server.error().code, "W020");
      EXPECT_NE(server.error().cause.find("a secret of " + std::to_string(size) + " bytes"),
                std::string::npos);
    }
  }
}

TEST(TcpServer, binds_loopback_unless_told_otherwise) {
  EXPECT_EQ(ServerOptions().address, "127.0.0.1");
  ServerOptions options = server_options();
  const auto server = TcpServer::start(options).value();
  EXPECT_NE(server->port(), 0);
  // 127.0.0.2 is this host too, but not the bound address.
  EXPECT_FALSE(connect_tcp("127.0.0.2", server->port(), Deadline(0)).ok());
}

TEST(TcpServer, with_a_secret_all_addresses_may_be_bound) {
  ServerOptions options = server_options();
  options.address = "0.0.0.0";
  const auto server = TcpServer::start(options);
  ASSERT_TRUE(server.ok()) << server.error().text();
  EXPECT_TRUE(connect_tcp("127.0.0.2", (*server)->port(), Deadline(kSecond)).ok());
}

TEST(TcpServer, a_port_in_use_and_a_bad_address_are_explained) {
  const auto first = TcpServer::start(server_options()).value();
  ServerOptions options = server_options();
  options.port = first->port();
  const auto second = TcpServer::start(options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, "W021");
  EXPECT_NE(second.error().cause.find("in use"), std::string::npos) << second.error().text();
  options.address = "not-an-address";
  EXPECT_EQ(TcpServer::start(options).error().code, "W020");
}

TEST(TcpClient, waits_for_a_server_that_starts_later) {
  uint16_t port = 0;
  { port = TcpServer::start(server_options()).value()->port(); }
  std::unique_ptr<TcpServer> server;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ServerOptions options = server_options();
    options.port = port;
    server = TcpServer::start(options).value();
  });
  ClientOptions options;
  options.port = port;
  options.secret = kSecret;
  options.job = "job 7";
  const auto client = TcpClient::connect(options);
  EXPECT_TRUE(client.ok()) << client.error().text();
  later.join();
}

TEST(TcpClient, without_a_server_gives_up_after_its_timeout) {
  uint16_t port = 0;
  { port = TcpServer::start(server_options()).value()->port(); }
  ClientOptions options;
  options.port = port;
  options.secret = kSecret;
  options.connect_timeout_ns = 50'000'000;
  const auto client = TcpClient::connect(options);
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.error().code, "W021");
  EXPECT_NE(client.error().place.find(":" + std::to_string(port)), std::string::npos);
}

TEST(TcpClient, a_server_that_only_pretends_gets_no_proof_from_us) {
  const Fd listener = listen_tcp("127.0.0.1", 0).value();
  std::string received;
  std::thread impostor([&] {
    Fd fd;
    while (!fd) fd = Fd(accept_one(listener));
    while (received.size() < kHelloBytes) {
      ASSERT_TRUE(receive_some(fd, received, 4096, Deadline(5 * kSecond)).ok());
    }
    ASSERT_TRUE(send_all(fd, std::string(kReplyBytes, 'z'), Deadline(kSecond)).ok());
    while (receive_some(fd, received, 4096, Deadline(5 * kSecond)).ok()) {
    }
  });
  ClientOptions options;
  options.port = port_of(listener).value();
  options.secret = kSecret;
  EXPECT_EQ(TcpClient::connect(options).error().code, "W022");
  impostor.join();
  EXPECT_EQ(received.size(), kHelloBytes);
}

TEST(Secrets, are_random_and_survive_hex) {
  const std::string a = make_secret().value(), b = make_secret().value();
  EXPECT_EQ(a.size(), kSecretBytes);
  EXPECT_NE(a, b);
  EXPECT_EQ(secret_from_hex(to_hex(a)).value(), a);
  EXPECT_EQ(secret_from_hex("abc").error().code, "W020");
  EXPECT_EQ(secret_from_hex(std::string(64, 'g')).error().code, "W020");
}

TEST(Frames, arrive_whole_in_any_pieces_and_only_in_order) {
  Sealer sealer("key");
  const std::string first = sealer.seal("one").value(), second = sealer.seal("two").value();
  Opener opener("key");
  for (const char c : first) {
    const auto before = opener.next();
    ASSERT_TRUE(before.ok());
    EXPECT_FALSE(before->has_value());
    opener.feed({&c, 1});
  }
  EXPECT_EQ(opener.next().value(), "one");
  Opener skips("key");
  skips.feed(second);
  EXPECT_EQ(skips.next().error().code, "W022");
  Opener other_direction("other key");
  other_direction.feed(first);
  EXPECT_EQ(other_direction.next().error().code, "W022");
}

TEST(Macs, depend_on_where_the_parts_are_cut) {
  EXPECT_NE(mac_of("k", {"ab", "c"}).value(), mac_of("k", {"a", "bc"}).value());
  EXPECT_EQ(to_hex(mac_of("k", {}).value()).size(), 64u);
}

TEST(Macs, are_hmac_sha256_of_length_prefixed_parts) {
  // Computed by another implementation: HMAC-SHA256("Jefe", u64le(28) | "what do ya want for nothing?").
  const std::string mac = mac_of("Jefe", {"what do ya want for nothing?"}).value();
  EXPECT_EQ(to_hex(mac), "c0b77cf99718fc7f09c8727ff74305bde25761b2db20b1081cfcc82a3ec6029e");
}

}  // namespace
}  // namespace tenon::run
