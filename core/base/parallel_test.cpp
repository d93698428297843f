#include "base/parallel.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <numeric>
#include <set>

namespace tenon {
namespace {

std::unique_ptr<ThreadPool> pool_of(int threads) {
  Result<std::unique_ptr<ThreadPool>> pool = ThreadPool::create(threads);
  EXPECT_TRUE(pool.ok());
  return std::move(pool).value();
}

template <class Body>
void run(ThreadPool& pool, int64_t parts, Body body) {
  pool.run(
      parts, [](void* arg, int64_t part) { (*static_cast<Body*>(arg))(part); }, &body);
}

TEST(ThreadPool, every_part_runs_exactly_once_and_is_seen_by_the_caller) {
  for (const int threads : {1, 2, 3, 8}) {
    const auto pool = pool_of(threads);
    EXPECT_EQ(pool->num_threads(), threads);
    for (const int64_t parts : {0, 1, 2, 3, 7, 8, 1000}) {
      std::vector<int> count(static_cast<size_t>(parts), 0);  // plain: TSan would see a race
      run(*pool, parts, [&](int64_t part) { ++count[static_cast<size_t>(part)]; });
      EXPECT_EQ(count, std::vector<int>(static_cast<size_t>(parts), 1)) << threads << " threads";
    }
  }
}

// Jobs of changing size that follow each other at once: a late helper meets the next job's fields.
TEST(ThreadPool, jobs_that_follow_each_other_are_never_mixed) {
  const auto pool = pool_of(4);
  for (int64_t job = 0; job < 20000; ++job) {
    const int64_t parts = 1 + job % 9;
    std::atomic<int64_t> sum{0};
    run(*pool, parts, [&sum, job](int64_t part) { sum += job * 100 + part; });
    ASSERT_EQ(sum.load(), parts * job * 100 + parts * (parts - 1) / 2) << "job " << job;
  }
}

TEST(ThreadPool, several_threads_take_part) {
  const auto pool = pool_of(2);
  // Each part waits for the other, so one thread alone could not finish.
  std::atomic<int> arrived{0};
  run(*pool, 2, [&](int64_t) {
    arrived.fetch_add(1);
    while (arrived.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), 2);
}

TEST(ThreadPool, a_part_may_call_parallel_for_which_then_runs_in_order) {
  const auto pool = pool_of(3);
  const ThreadPool::Use use(*pool);
  const tenon_parallel* table = parallel_table();
  struct Outer {
    const tenon_parallel* table;
    std::vector<std::vector<int64_t>> seen;
    std::vector<int32_t> threads;
  } outer{table, std::vector<std::vector<int64_t>>(8), std::vector<int32_t>(8)};
  table->parallel_for(
      table, 8,
      [](void* arg, int64_t part) {
        auto& o = *static_cast<Outer*>(arg);
        const auto index = static_cast<size_t>(part);
        o.threads[index] = o.table->num_threads(o.table);
        o.table->parallel_for(
            o.table, 5, [](void* list, int64_t i) { static_cast<std::vector<int64_t>*>(list)->push_back(i); },
            &o.seen[index]);
      },
      &outer);
  for (const auto& seen : outer.seen) EXPECT_EQ(seen, (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(std::set<int32_t>(outer.threads.begin(), outer.threads.end()), std::set<int32_t>{1});
  EXPECT_EQ(ThreadPool::current(), pool.get()) << "put back behind the parts";
}

TEST(ThreadPool, run_called_directly_inside_a_part_runs_in_order) {
  const auto pool = pool_of(3);
  std::atomic<int> inner{0};
  run(*pool, 6, [&](int64_t) {
    std::vector<int64_t> seen;
    run(*pool, 4, [&](int64_t part) { seen.push_back(part); });
    if (seen == std::vector<int64_t>{0, 1, 2, 3}) ++inner;
  });
  EXPECT_EQ(inner.load(), 6);
}

TEST(ThreadPool, table_uses_the_pool_of_the_calling_thread) {
  const tenon_parallel* table = parallel_table();
  EXPECT_EQ(table->struct_size, sizeof(tenon_parallel));
  EXPECT_EQ(table->num_threads(table), 1) << "no pool: serial";
  std::vector<int64_t> seen;
  table->parallel_for(
      table, 3, [](void* arg, int64_t part) { static_cast<std::vector<int64_t>*>(arg)->push_back(part); },
      &seen);
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 1, 2}));
  const auto two = pool_of(2), three = pool_of(3);
  {
    const ThreadPool::Use outer(*two);
    EXPECT_EQ(table->num_threads(table), 2);
    {
      const ThreadPool::Use inner(*three);
      EXPECT_EQ(table->num_threads(table), 3);
    }
    EXPECT_EQ(table->num_threads(table), 2);
    int32_t elsewhere = 0;
    std::thread([&] { elsewhere = table->num_threads(table); }).join();
    EXPECT_EQ(elsewhere, 1) << "a pool belongs to the thread that named it";
  }
  EXPECT_EQ(table->num_threads(table), 1);
}

TEST(ThreadPool, ranks_as_threads_each_use_their_own_pool) {
  std::vector<int64_t> sums(3, 0);
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < sums.size(); ++rank) {
    ranks.emplace_back([rank, &sums] {
      const auto pool = pool_of(2);
      const ThreadPool::Use use(*pool);
      const tenon_parallel* table = parallel_table();
      for (int i = 0; i < 500; ++i) {
        std::atomic<int64_t> sum{0};
        table->parallel_for(
            table, 10, [](void* arg, int64_t part) { *static_cast<std::atomic<int64_t>*>(arg) += part; },
            &sum);
        sums[rank] += sum.load();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(sums, (std::vector<int64_t>(3, 500 * 45)));
}

TEST(ThreadPool, helpers_block_all_signals_and_the_caller_keeps_its_own) {
  const auto pool = pool_of(2);
  std::atomic<int> arrived{0}, blocked{0};
  run(*pool, 2, [&](int64_t) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    if (sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGTERM) == 1) ++blocked;
    arrived.fetch_add(1);
    while (arrived.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(blocked.load(), 1);
}

TEST(ThreadPool, of_no_thread_or_more_than_any_machine_runs_is_an_error_before_one_is_started) {
  for (const int threads : {-1, 0, ThreadPool::kMostThreads + 1, 1 << 20}) {
    const auto pool = ThreadPool::create(threads);
    ASSERT_FALSE(pool.ok());
    EXPECT_EQ(pool.error().cause, "a pool of " + std::to_string(threads) + " threads");
    EXPECT_EQ(pool.error().fix, "ask for 1 to 4096");
    EXPECT_EQ(pool.error().kind, TENON_E_ARGUMENT);
  }
}

}  // namespace
}  // namespace tenon
