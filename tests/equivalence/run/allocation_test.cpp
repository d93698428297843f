// A step of the executor allocates nothing: every operator new of the core is counted while it runs.
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <new>

#include "recipes.hpp"
#include "virtual_run.hpp"

namespace {

std::atomic<long> g_allocations{0};

void* counted(std::size_t bytes) noexcept {
  ++g_allocations;
  return std::malloc(bytes > 0 ? bytes : 1);
}

void* checked(void* p) { return p != nullptr ? p : throw std::bad_alloc(); }

}  // namespace

void* operator new(std::size_t bytes) { return checked(counted(bytes)); }
void* operator new[](std::size_t bytes) { return checked(counted(bytes)); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }

namespace tenon::test {
namespace {

Json recipe(bool exact) {
  const std::string file = testing::TempDir() + "tenon_allocation_corpus.txt";
  std::ofstream(file) << std::string(2000, 'a') + std::string(2000, 'b');
  const TinyModel tiny;
  Json out = tiny_recipe(gpt2_model(tiny), file, tiny.context);
  out["kernels"]["plugin"] = "kernels/cpu";
  out["numerics"]["mode"] = exact ? "exact" : "fast";
  return out;
}

class Allocation : public testing::TestWithParam<bool> {};

TEST_P(Allocation, a_step_makes_none) {
  long during = -1;
  RunOptions options;
  options.threads = 2;
  options.steps = 2;
  options.after = [&](Session& session) -> Status {
    const ThreadPool::Use none(nullptr);
    std::vector<InstrTimes> times(session.train_program().instrs.size());
    const long before = g_allocations.load();
    for (InstrTimes* traced : {static_cast<InstrTimes*>(nullptr), times.data()}) {
      TENON_CHECK(
          session.train_executor()->run(session.steps_done() + 1, 1e-3, Executor::Waits::planned, traced));
    }
    during = g_allocations.load() - before;
    return {};
  };
  const auto record = run_virtual(recipe(GetParam()), options);
  ASSERT_TRUE(record.ok()) << record.error().text();
  EXPECT_EQ(during, 0);
}

INSTANTIATE_TEST_SUITE_P(modes, Allocation, testing::Bool());

TEST(allocation, the_counter_counts) {
  const long before = g_allocations.load();
  ::operator delete(::operator new(1));  // calls, which no compiler may leave out
  EXPECT_EQ(g_allocations.load(), before + 1);
}

}  // namespace
}  // namespace tenon::test
