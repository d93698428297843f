#include "host/plugins/host.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/parallel.h"

namespace tenon {
namespace {

const tenon_memory* memory_of(const Host& host) {
  return static_cast<const tenon_memory*>(host.table()->get_interface(host.table(), TENON_HOST_MEMORY));
}

TEST(Host, memory_is_aligned_counted_and_given_back) {
  const Host host;
  const tenon_memory* memory = memory_of(host);
  ASSERT_NE(memory, nullptr);
  void* a = memory->alloc(memory, 100);
  void* b = memory->alloc(memory, 0);
  ASSERT_NE(a, nullptr);
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % 64, 0u);
  std::memset(a, 0xff, 100);
  EXPECT_EQ(host.memory_use().bytes, 100u);
  EXPECT_EQ(host.memory_use().blocks, 2u);
  memory->free(memory, a);
  memory->free(memory, b);
  memory->free(memory, nullptr);
  EXPECT_EQ(host.memory_use().bytes, 0u);
  EXPECT_EQ(host.memory_use().blocks, 0u);
  EXPECT_EQ(host.memory_use().peak_bytes, 100u);
}

TEST(Host, memory_that_cannot_be_had_is_null_and_not_counted) {
  const Host host;
  const tenon_memory* memory = memory_of(host);
  EXPECT_EQ(memory->alloc(memory, UINT64_MAX), nullptr);
  EXPECT_EQ(memory->alloc(memory, UINT64_MAX - 64), nullptr);
  EXPECT_EQ(host.memory_use().blocks, 0u);
}

TEST(Host, counters_of_two_hosts_are_apart) {
  const Host one, other;
  void* block = memory_of(one)->alloc(memory_of(one), 8);
  EXPECT_EQ(one.memory_use().bytes, 8u);
  EXPECT_EQ(other.memory_use().bytes, 0u);
  memory_of(one)->free(memory_of(one), block);
}

TEST(Host, counters_hold_under_threads) {
  const Host host;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([memory = memory_of(host)] {
      for (int i = 0; i < 1000; ++i) memory->free(memory, memory->alloc(memory, 64));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(host.memory_use().bytes, 0u);
  EXPECT_GE(host.memory_use().peak_bytes, 64u);
  EXPECT_LE(host.memory_use().peak_bytes, 4u * 64u);
}

TEST(Host, offers_parallel_and_nothing_unknown) {
  const Host host;
  EXPECT_EQ(host.table()->get_interface(host.table(), TENON_HOST_PARALLEL), parallel_table());
  EXPECT_EQ(host.table()->get_interface(host.table(), "tenon.host.parallel/2"), nullptr);
  EXPECT_EQ(host.table()->get_interface(host.table(), nullptr), nullptr);
  EXPECT_EQ(host.table()->struct_size, sizeof(tenon_host));
}

TEST(Host, a_null_is_refused_by_every_slot) {
  const Host host;
  const tenon_host* table = host.table();
  EXPECT_EQ(table->get_interface(nullptr, TENON_HOST_MEMORY), nullptr);
  EXPECT_EQ(table->get_interface(nullptr, nullptr), nullptr);
  EXPECT_EQ(table->log_enabled(nullptr, TENON_LOG_ERROR), 0);
  table->log(nullptr, TENON_LOG_ERROR, "a.c", 1, "nobody hears");
  const tenon_memory* memory = memory_of(host);
  EXPECT_EQ(memory->alloc(nullptr, 64), nullptr);
  memory->free(nullptr, nullptr);
  const tenon_parallel* parallel = parallel_table();
  parallel->parallel_for(nullptr, 3, nullptr, nullptr);
  EXPECT_EQ(parallel->num_threads(nullptr), 1);
}

TEST(Host, lines_up_to_the_level_reach_the_embedder) {
  std::vector<std::string> lines;
  const Host host(
      [&lines](uint32_t level, std::string_view file, uint32_t line, std::string_view message) {
        lines.push_back(std::to_string(level) + " " + std::string(file) + ":" + std::to_string(line) + " " +
                        std::string(message));
      },
      TENON_LOG_WARN);
  const tenon_host* table = host.table();
  table->log(table, TENON_LOG_WARN, "a.c", 7, "careful");
  table->log(table, TENON_LOG_INFO, "a.c", 8, "dropped");
  table->log(table, TENON_LOG_ERROR, nullptr, 0, nullptr);
  EXPECT_EQ(lines, (std::vector<std::string>{"1 a.c:7 careful", "0 :0 "}));
  EXPECT_EQ(table->log_enabled(table, TENON_LOG_WARN), 1);
  EXPECT_EQ(table->log_enabled(table, TENON_LOG_INFO), 0);
}

TEST(Host, silent_without_a_function) {
  const Host host;
  EXPECT_EQ(host.table()->log_enabled(host.table(), TENON_LOG_ERROR), 0);
  host.table()->log(host.table(), TENON_LOG_ERROR, "a.c", 1, "nobody hears");
}

TEST(Host, log_handed_over_goes_to_the_heir_alone) {
  int mine = 0, theirs = 0;
  Host host([&](auto, auto, auto, auto) { ++mine; });
  const auto heir = std::make_shared<Host>([&](auto, auto, auto, auto) { ++theirs; }, TENON_LOG_DEBUG);
  host.hand_over_log(heir);
  host.table()->log(host.table(), TENON_LOG_DEBUG, "a.c", 1, "x");
  EXPECT_EQ(mine, 0);
  EXPECT_EQ(theirs, 1) << "the heir's level counts";
  host.hand_over_log(nullptr);
  host.table()->log(host.table(), TENON_LOG_ERROR, "a.c", 1, "x");
  EXPECT_EQ(theirs, 1);
}

}  // namespace
}  // namespace tenon
