// What every rendezvous promises, on both implementations, and the C table over them.
#include "run/rendezvous/rendezvous.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <thread>

#include "run/rendezvous/auth.h"
#include "run/rendezvous/memory_rendezvous.h"
#include "run/rendezvous/tcp_client.h"
#include "run/rendezvous/tcp_server.h"

namespace tenon::run {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1000 * kMs;

// One job: what each rank talks to, and how the launcher aborts it.
class Job {
 public:
  virtual ~Job() = default;
  virtual Rendezvous& rank(int r) = 0;
  virtual void abort(const std::string& reason) = 0;
};

class MemoryJob final : public Job {
 public:
  Rendezvous& rank(int) override { return shared_; }
  void abort(const std::string& reason) override { shared_.abort(reason); }

 private:
  MemoryRendezvous shared_;
};

class TcpJob final : public Job {
 public:
  explicit TcpJob(uint32_t world) {
    ServerOptions server;
    server.secret = make_secret().value();
    server.job = "job";
    server.world = world;
    server_ = TcpServer::start(server).value();
    for (uint32_t r = 0; r < world; ++r) {
      ClientOptions client;
      client.port = server_->port();
      client.secret = server.secret;
      client.job = "job";
      client.rank = r;
      clients_.push_back(TcpClient::connect(client).value());
    }
  }
  Rendezvous& rank(int r) override { return *clients_[static_cast<size_t>(r)]; }
  void abort(const std::string& reason) override { server_->abort(reason); }

 private:
  std::unique_ptr<TcpServer> server_;
  std::vector<std::unique_ptr<TcpClient>> clients_;
};

constexpr int kWorld = 4;

class EveryRendezvous : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) == "tcp") {
      job_ = std::make_unique<TcpJob>(kWorld);
    } else {
      job_ = std::make_unique<MemoryJob>();
    }
  }
  Rendezvous& rank(int r) { return job_->rank(r); }
  // Runs body(rank) on one thread per rank.
  void on_all_ranks(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int r = 0; r < kWorld; ++r) threads.emplace_back(body, r);
    for (std::thread& t : threads) t.join();
  }
  std::unique_ptr<Job> job_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, EveryRendezvous, testing::Values("memory", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(EveryRendezvous, a_value_set_by_one_rank_is_read_by_another) {
  const std::string value("a\0b\xff", 4);
  ASSERT_TRUE(rank(0).set("key", value).ok());
  EXPECT_EQ(rank(1).get("key", 0).value(), value);
}

TEST_P(EveryRendezvous, a_get_waits_for_a_later_set) {
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ASSERT_TRUE(rank(1).set("late", "here").ok());
  });
  EXPECT_EQ(rank(0).get("late", 20 * kSecond).value(), "here");
  later.join();
}

TEST_P(EveryRendezvous, a_get_of_a_missing_key_times_out_and_names_it) {
  const auto missing = rank(0).get("nobody/sets/this", 20 * kMs);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, "W024");
  EXPECT_EQ(missing.error().kind, TENON_E_TIMEOUT);
  EXPECT_NE(missing.error().cause.find("'nobody/sets/this'"), std::string::npos) << missing.error().text();
}

TEST_P(EveryRendezvous, a_key_is_set_once_and_the_same_value_again_is_fine) {
  ASSERT_TRUE(rank(0).set("once", "x").ok());
  EXPECT_TRUE(rank(1).set("once", "x").ok());
  const Status other = rank(1).set("once", "y");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, "W026");
  EXPECT_EQ(rank(2).get("once", 0).value(), "x");
}

TEST_P(EveryRendezvous, limits_on_keys_and_values_are_refused_and_harm_nothing) {
  EXPECT_EQ(rank(0).set("", "x").error().code, "W027");
  EXPECT_EQ(rank(0).set(std::string(kMaxKeyBytes + 1, 'k'), "x").error().code, "W027");
  EXPECT_EQ(rank(0).set("big", std::string(kMaxValueBytes + 1, 'v')).error().code, "W027");
  const std::string largest(kMaxValueBytes, 'v');
  ASSERT_TRUE(rank(0).set(std::string(kMaxKeyBytes, 'k'), largest).ok());
  EXPECT_EQ(rank(1).get(std::string(kMaxKeyBytes, 'k'), 0).value(), largest);
}

TEST_P(EveryRendezvous, an_abort_ends_waiting_and_later_gets_with_its_reason) {
  std::thread aborter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    job_->abort("rank 3 exited with status 1");
  });
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto got = rank(0).get("never", -1);
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.error().code, "W025");
    EXPECT_EQ(got.error().kind, TENON_E_ABORTED);
    EXPECT_NE(got.error().cause.find("rank 3 exited with status 1"), std::string::npos);
  }
  aborter.join();
  job_->abort("a second reason");
  EXPECT_NE(rank(1).get("never", -1).error().cause.find("rank 3 exited"), std::string::npos);
}

TEST_P(EveryRendezvous, all_gather_returns_every_ranks_bytes_in_rank_order) {
  on_all_ranks([&](int r) {
    for (int round = 0; round < 20; ++round) {
      const std::string name = "gather" + std::to_string(round);
      const auto all =
          all_gather_bytes(rank(r), name, r, kWorld, std::string(static_cast<size_t>(r), 'a'), 20 * kSecond);
      ASSERT_TRUE(all.ok()) << all.error().text();
      EXPECT_EQ(*all, (std::vector<std::string>{"", "a", "aa", "aaa"}));
    }
  });
}

TEST_P(EveryRendezvous, a_barrier_without_two_ranks_names_them_to_all_others) {
  on_all_ranks([&](int r) {
    if (r == 1 || r == 2) return;
    const Status status = barrier(rank(r), "step", r, kWorld, 100 * kMs);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().kind, TENON_E_TIMEOUT);
    EXPECT_NE(status.error().cause.find("have not come: 1 2"), std::string::npos) << status.error().text();
  });
}

TEST_P(EveryRendezvous, many_threads_of_one_rank_may_wait_at_once) {
  constexpr int kThreads = 8;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        const std::string mine = std::to_string(t) + "." + std::to_string(i);
        const std::string theirs = std::to_string((t + 1) % kThreads) + "." + std::to_string(i);
        ASSERT_TRUE(rank(0).set(mine, mine).ok());
        const auto got = rank(0).get(theirs, 20 * kSecond);
        ASSERT_TRUE(got.ok()) << got.error().text();
        EXPECT_EQ(*got, theirs);
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST_P(EveryRendezvous, scopes_keep_equal_keys_apart) {
  ScopedRendezvous a(rank(0), "a"), b(rank(0), "b");
  ASSERT_TRUE(a.set("k", "1").ok());
  ASSERT_TRUE(b.set("k", "2").ok());
  EXPECT_EQ(rank(1).get("a/k", 0).value(), "1");
  EXPECT_EQ(b.get("k", 0).value(), "2");
}

TEST_P(EveryRendezvous, the_c_table_sets_gets_and_reports) {
  const RendezvousTable adapter(rank(0));
  const tenon_rendezvous* table = adapter.table();
  tenon_error error = empty_abi_error();
  ASSERT_EQ(table->set(table, "c", "12345", 5, &error), TENON_OK) << error.message;
  std::array<char, 8> buffer{};
  uint64_t size = buffer.size();
  ASSERT_EQ(table->get(table, "c", buffer.data(), &size, 0, &error), TENON_OK) << error.message;
  EXPECT_EQ(std::string(buffer.data(), size), "12345");

  size = 4;
  EXPECT_EQ(table->get(table, "c", buffer.data(), &size, 0, &error), TENON_E_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("has 5 bytes, the buffer 4"), std::string::npos) << error.message;
  EXPECT_EQ(size, 4u) << "outputs stay untouched on error";
  EXPECT_EQ(table->get(table, "none", buffer.data(), &size, kMs, &error), TENON_E_TIMEOUT);
  EXPECT_NE(std::string(error.message).find("'none'"), std::string::npos) << error.message;
  EXPECT_EQ(table->set(table, nullptr, "", 0, nullptr), TENON_E_ARGUMENT);
}

TEST(AllGather, a_rank_outside_the_world_is_refused) {
  MemoryRendezvous shared;
  EXPECT_EQ(all_gather_bytes(shared, "x", 2, 2, "", 0).error().code, "W020");
}

}  // namespace
}  // namespace tenon::run
