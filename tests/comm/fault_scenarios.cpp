// Refusals and faults: what each rank is told, and that nothing hangs.
#include <signal.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <optional>
#include <thread>

#include "scenarios.h"
#include "tenon_sdk/comm/deadline.hpp"
#include "values.h"

namespace tenon::test {

namespace {

using comm::kMs;

// Runs body, which must fail with one of the codes and a message that holds every part.
void expect_failure(const std::function<void()>& body, const std::vector<tenon_code>& codes,
                    const std::vector<std::string>& parts) {
  try {
    body();
  } catch (const CommError& e) {
    const std::string message = e.what();
    bool known = false;
    for (const tenon_code code : codes) known = known || code == e.code();
    if (!known) throw std::runtime_error("code " + std::to_string(e.code()) + " is not expected: " + message);
    for (const std::string& part : parts) {
      if (message.find(part) == std::string::npos) {
        throw std::runtime_error("the message has no '" + part + "': " + message);
      }
    }
    return;
  }
  throw std::runtime_error("it did not fail; expected a message with '" + (parts.empty() ? "" : parts[0]) +
                           "'");
}

// An array of a rank: from alloc (then the plugin is given this very memory), or a vector.
class Floats {
 public:
  Floats(const RankContext& c, const Domain& domain, size_t count, float value)
      : domain_(domain), count_(count), vector_(c.reachable ? 0 : count) {
    tenon_error error = empty_error();
    void* memory = vector_.data();
    if (c.reachable) check(domain.table().alloc(domain.get(), count * sizeof(float), &memory, &error), error);
    data_ = static_cast<float*>(memory);
    std::fill(begin(), end(), value);
  }
  ~Floats() {
    if (vector_.empty()) domain_.table().free(domain_.get(), data_);
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  float* data() { return data_; }
  size_t size() const { return count_; }
  float* begin() { return data_; }
  float* end() { return data_ + count_; }

 private:
  const Domain& domain_;
  const size_t count_;
  std::vector<float> vector_;
  float* data_ = nullptr;
};

// Of a scenario that brings its own memory.
Domain::Settings settings_for_own_memory(const RankContext& c, int64_t timeout_ns = 20'000'000'000) {
  Domain::Settings settings = c.settings(timeout_ns);
  settings.reachable = false;
  return settings;
}

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

void bad_operations_are_refused(const RankContext& c) {
  const run::RendezvousTable rendezvous(c.rendezvous);
  const Domain domain(c.table, rendezvous.table(), settings_for_own_memory(c));
  const Group world(domain, all_ranks(c.world));
  std::array<float, 16> a{}, b{};
  const auto refused = [&](const OpSpec& spec, tenon_code code, const std::vector<std::string>& parts) {
    expect_failure([&] { Plan plan(world, {spec}); }, {code}, parts);
  };
  refused({TENON_COMM_ALL_REDUCE, TENON_F32, nullptr, b.data(), 4}, TENON_E_ARGUMENT,
          {"all_reduce sum f32[4]", "src is NULL"});
  refused({TENON_COMM_ALL_REDUCE, TENON_F32, a.data(), nullptr, 4}, TENON_E_ARGUMENT, {"dst is NULL"});
  refused({TENON_COMM_ALL_REDUCE, TENON_F32, a.data(), a.data() + 1, 4}, TENON_E_ARGUMENT, {"overlap"});
  refused({TENON_COMM_PERMUTE, TENON_F32, a.data(), a.data(), 4}, TENON_E_ARGUMENT,
          {"permute f32[4]", "overlap"});
  refused({TENON_COMM_ALL_GATHER, TENON_F32, a.data(), b.data(), 4}, TENON_E_ARGUMENT,
          {"all_gather", "counts is NULL"});
  refused({TENON_COMM_BROADCAST, TENON_F32, a.data(), b.data(), 4, {}, c.world}, TENON_E_ARGUMENT,
          {"member " + std::to_string(c.world) + " is not in a group of " + std::to_string(c.world)});
  refused({TENON_COMM_SEND, TENON_F32, a.data(), nullptr, 4, {}, -1}, TENON_E_ARGUMENT, {"member -1"});
  refused({TENON_COMM_ALL_REDUCE, TENON_F16, a.data(), b.data(), 4}, TENON_E_UNSUPPORTED, {"sum f16[4]"});
  refused({TENON_COMM_ALL_REDUCE, TENON_U8, a.data(), b.data(), 4}, TENON_E_UNSUPPORTED, {"sum u8[4]"});
  refused({TENON_COMM_ALL_REDUCE, 77, a.data(), b.data(), 4}, TENON_E_UNSUPPORTED, {"dtype 77"});
  refused({77, TENON_F32, a.data(), b.data(), 4}, TENON_E_UNSUPPORTED, {"kind 77"});
  const uint64_t huge = uint64_t{1} << 63;
  refused({TENON_COMM_ALL_REDUCE, TENON_F32, a.data(), b.data(), huge}, TENON_E_ARGUMENT,
          {"more elements than"});

  Plan never_started(world, {OpSpec{}});
  expect_failure([&] { never_started.wait(); }, {TENON_E_STATE}, {"has not been started"});
  expect_failure([&] { Group(domain, {c.world}); }, {TENON_E_ARGUMENT}, {"world of"});
  expect_failure([&] { Group(domain, {c.rank, c.rank}); }, {TENON_E_ARGUMENT}, {"twice"});
  if (c.world > 1) {
    expect_failure([&] { Group(domain, {(c.rank + 1) % c.world}); }, {TENON_E_ARGUMENT}, {"not in"});
    Plan barrier(world, {OpSpec{}});
    if (c.rank == 0) {
      barrier.start();
      expect_failure([&] { barrier.start(); }, {TENON_E_STATE}, {"in flight"});
    }
    c.meet("second start tried");
    if (c.rank != 0) barrier.start();
    barrier.wait();
    barrier.wait();  // done stays done
  }
  Plan(world, {OpSpec{}}).run();  // the domain is none the worse
}

// The last rank comes late: all others time out and name it, then it learns that they gave up.
void a_missing_member_is_named_after_the_timeout(const RankContext& c) {
  const run::RendezvousTable rendezvous(c.rendezvous);
  const Domain domain(c.table, rendezvous.table(), c.settings());
  const Group world(domain, all_ranks(c.world));
  const Group other(domain, all_ranks(c.world));
  Plan(other, {OpSpec{}}).run();  // so that all are connected
  const int late = c.world - 1;
  std::array<double, 10> a{}, b{};
  {
    Plan plan(world, {{TENON_COMM_ALL_REDUCE, TENON_F64, a.data(), b.data(), a.size()}});
    if (c.rank != late) {
      plan.start();
      expect_failure([&] { plan.wait(100 * kMs); }, {TENON_E_TIMEOUT},
                     {"all_reduce sum f64[10]", "waited 0.1", rank_text(late)});
      expect_failure([&] { plan.wait(); }, {TENON_E_TIMEOUT}, {rank_text(late)});
      expect_failure([&] { plan.start(); }, {TENON_E_TIMEOUT}, {rank_text(late)});
    }
    c.meet("timed out");
    if (c.rank == late) {
      expect_failure(
          [&] {
            plan.start();
            plan.wait(500 * kMs);
          },
          {TENON_E_TIMEOUT, TENON_E_PEER}, {"all_reduce"});
    }
    c.meet("late came");
  }
  Plan(other, {OpSpec{}}).run();  // what was given up has not hurt the rest of the domain
}

void a_mismatch_names_both_sides(const RankContext& c) {
  const run::RendezvousTable rendezvous(c.rendezvous);
  const Domain domain(c.table, rendezvous.table(), c.settings(5000 * kMs));
  const Group world(domain, all_ranks(c.world));
  const int odd = c.world - 1;
  std::array<float, 64> a{}, b{};
  const auto differs = [&](const OpSpec& most, const OpSpec& other, const std::vector<std::string>& parts) {
    // A mismatch ends a group's order of operations, so each case has its own.
    const Group group(domain, all_ranks(c.world));
    Plan plan(group, {c.rank == odd ? other : most});
    std::vector<std::string> all = parts;
    // Every rank that is told of a mismatch is told of its own side and another's.
    all.push_back(rank_text(odd) + " started");
    // Whoever is not next to the odd one may finish before it is told, but no later than the following
    // operation.
    Plan following(group, {OpSpec{}});
    expect_failure(
        [&] {
          plan.run();
          following.run();
        },
        {TENON_E_ARGUMENT}, all);
    c.meet("mismatch " + parts[0] + parts[1]);
  };
  differs({TENON_COMM_ALL_REDUCE, TENON_F32, a.data(), b.data(), 10},
          {TENON_COMM_ALL_REDUCE, TENON_F32, a.data(), b.data(), 12},
          {"all_reduce sum f32[10]", "all_reduce sum f32[12]"});
  differs({TENON_COMM_ALL_REDUCE, TENON_F32, a.data(), b.data(), 10},
          {TENON_COMM_ALL_REDUCE, TENON_I32, a.data(), b.data(), 10}, {"sum f32[10]", "sum i32[10]"});
  differs({TENON_COMM_ALL_REDUCE, TENON_F32, a.data(), b.data(), 10, {}, 0, TENON_MAX},
          {TENON_COMM_ALL_REDUCE, TENON_F32, a.data(), b.data(), 10}, {"max f32[10]", "sum f32[10]"});
  differs({TENON_COMM_BARRIER}, {TENON_COMM_ALL_REDUCE, TENON_F32, a.data(), b.data(), 10},
          {"barrier", "all_reduce sum f32[10]"});
  differs({TENON_COMM_BROADCAST, TENON_F32, a.data(), b.data(), 10, {}, 0},
          {TENON_COMM_BROADCAST, TENON_F32, a.data(), b.data(), 10, {}, 1},
          {"from member 0", "from member 1"});
}

// Sends and receives have no third party: the receiver finds out.
void a_mismatched_message_names_both_ends(const RankContext& c) {
  const run::RendezvousTable rendezvous(c.rendezvous);
  const Domain domain(c.table, rendezvous.table(), c.settings(5000 * kMs));
  std::array<float, 64> a{}, b{};
  struct Pair {
    OpSpec send, receive;
  };
  const Pair pairs[] = {
      {{TENON_COMM_SEND, TENON_F32, a.data(), nullptr, 10, {}, 1},
       {TENON_COMM_RECV, TENON_F32, nullptr, b.data(), 12}},
      {{TENON_COMM_SEND, TENON_F32, a.data(), nullptr, 12, {}, 1},
       {TENON_COMM_RECV, TENON_F32, nullptr, b.data(), 10}},
      {{TENON_COMM_SEND, TENON_I32, a.data(), nullptr, 10, {}, 1},
       {TENON_COMM_RECV, TENON_F32, nullptr, b.data(), 10}},
  };
  int number = 0;
  for (const Pair& pair : pairs) {
    const Group group(domain, all_ranks(c.world));
    if (c.rank == 1) {
      Plan plan(group, {pair.receive});
      expect_failure(
          [&] { plan.run(); }, {TENON_E_ARGUMENT},
          {"rank 0 s", "rank 1 started recv f32[" + std::to_string(pair.receive.count) + "] from member 0"});
    }
    if (c.rank == 0) {
      Plan plan(group, {pair.send});
      try {
        plan.run();  // a small message may be gone before anyone looks at it
      } catch (const CommError& e) {
        if (e.code() != TENON_E_ARGUMENT) throw;
      }
    }
    c.meet("message " + std::to_string(number++));
  }
}

void an_abort_ends_a_wait(const RankContext& c) {
  const run::RendezvousTable rendezvous(c.rendezvous);
  const Domain domain(c.table, rendezvous.table(), settings_for_own_memory(c, 10'000 * kMs));
  const Group world(domain, all_ranks(c.world));
  Floats a(c, domain, 100'000, 1.0f), b(c, domain, 100'000, 0.0f);
  const int absent = c.world - 1;
  {
    Plan plan(world, {{TENON_COMM_ALL_REDUCE, TENON_F32, a.data(), b.data(), a.size()}});
    Plan later(world, {{TENON_COMM_ALL_REDUCE, TENON_F32, a.data(), b.data(), a.size()}});
    c.meet("before abort");
    if (c.rank != absent) {
      std::thread aborter([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        domain.abort();
      });
      plan.start();
      try {
        // Whoever aborts first, the others may see the broken peer before their own abort.
        expect_failure([&] { plan.wait(); }, {TENON_E_ABORTED, TENON_E_PEER}, {"abort"});
      } catch (...) {
        aborter.join();
        throw;
      }
      aborter.join();
      expect_failure([&] { later.start(); }, {TENON_E_ABORTED}, {"abort"});
      expect_failure([&] { plan.wait(); }, {TENON_E_ABORTED}, {"abort"});
      expect_failure([&] { (void)plan.test(); }, {TENON_E_ABORTED}, {"abort"});
    }
    c.meet("aborted");
  }
  c.meet("released");
}

// Rank 0 aborts while the others have not come, who may not be connected with it yet, and calls nothing more
// until they know: they are told all the same, and need no timeout.
void an_abort_reaches_whoever_comes_later(const RankContext& c) {
  enum Moment { kBeforeStart, kInWait, kAfterOperation, kBeforeClose };
  for (const Moment moment : {kBeforeStart, kInWait, kAfterOperation, kBeforeClose}) {
    run::ScopedRendezvous scope(c.rendezvous, "moment " + std::to_string(moment));
    const run::RendezvousTable rendezvous(scope);
    std::optional<Domain> domain;
    domain.emplace(c.table, rendezvous.table(), c.settings(5000 * kMs));
    {
      const Group world(*domain, all_ranks(c.world));
      std::vector<float> a(1'000'000), b(1'000'000);
      Plan plan(world, {{TENON_COMM_ALL_REDUCE, TENON_F32, a.data(), b.data(), a.size()}});
      if (moment == kAfterOperation) plan.run();
      c.meet("before abort " + std::to_string(moment));
      if (c.rank != 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        expect_failure([&] { plan.run(); }, {TENON_E_PEER}, {rank_text(0)});
      } else {
        if (moment == kInWait) plan.start();
        domain->abort();
        if (moment == kBeforeStart) expect_failure([&] { plan.start(); }, {TENON_E_ABORTED}, {"abort"});
        if (moment == kInWait) expect_failure([&] { plan.wait(); }, {TENON_E_ABORTED}, {"abort"});
      }
      if (moment != kBeforeClose) c.meet("abort known " + std::to_string(moment));
    }
    domain.reset();
    if (moment == kBeforeClose) c.meet("abort known " + std::to_string(moment));
  }
}

// An abort at any moment of a large operation, again and again: whoever is told that it failed owns its
// memory.
void an_abort_gives_memory_back(const RankContext& c) {
  for (int round = 0; round < 20; ++round) {
    run::ScopedRendezvous scope(c.rendezvous, "round " + std::to_string(round));
    const run::RendezvousTable rendezvous(scope);
    const Domain domain(c.table, rendezvous.table(), settings_for_own_memory(c));
    const Group world(domain, all_ranks(c.world));
    Floats a(c, domain, 1'000'000, 1.0f), b(c, domain, 1'000'000, 0.0f);
    {
      Plan plan(world, {{TENON_COMM_ALL_REDUCE, TENON_F32, a.data(), b.data(), a.size()}});
      std::thread aborter([&] {
        if (c.rank != 0) return;
        std::this_thread::sleep_for(std::chrono::microseconds(mix(static_cast<uint64_t>(round)) % 3000));
        domain.abort();
      });
      std::string other;  // than ABORTED or PEER
      try {
        while (true) plan.run();
      } catch (const CommError& e) {
        if (e.code() != TENON_E_ABORTED && e.code() != TENON_E_PEER) other = e.what();
      }
      aborter.join();
      if (!other.empty()) throw std::runtime_error("another code than ABORTED or PEER: " + other);
      std::fill(b.begin(), b.end(), 7.0f);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      for (const float value : b) {
        if (value != 7.0f) throw std::runtime_error("memory of an aborted operation was written later");
      }
    }
    c.meet("round done " + std::to_string(round));
  }
}

// The last rank stops in the middle of its life, as if by SIGSTOP: alive for the kernel, but it takes part in
// nothing.
void a_rank_stops(const RankContext& c) {
  const run::RendezvousTable rendezvous(c.rendezvous);
  const Domain domain(c.table, rendezvous.table(), settings_for_own_memory(c));
  const Group world(domain, all_ranks(c.world));
  Floats a(c, domain, 3'000'000, 1.0f), b(c, domain, 3'000'000, 0.0f);
  const int victim = c.world - 1;
  {
    Plan plan(world, {{TENON_COMM_ALL_REDUCE, TENON_F32, a.data(), b.data(), a.size()}});
    plan.run();
    c.meet("all have the result");
    if (c.rank != victim) {
      const auto run = [&] {
        plan.start();
        plan.wait(300 * kMs);
      };
      expect_failure(run, {TENON_E_TIMEOUT}, {"all_reduce sum f32[3000000]", rank_text(victim)});
      // What failed is ours again: nobody may write it any more.
      std::fill(b.begin(), b.end(), 7.0f);
    }
    c.meet("the others have given up");
    if (c.rank == victim) {
      expect_failure([&] { plan.run(); }, {TENON_E_TIMEOUT, TENON_E_PEER}, {"all_reduce sum f32[3000000]"});
    }
    c.meet("all have failed");
    if (c.rank == victim) return;
    for (const float value : b) {
      if (value != 7.0f) throw std::runtime_error("memory of a failed operation was written later");
    }
  }
}

void a_rank_dies(const RankContext& c) {
  const run::RendezvousTable rendezvous(c.rendezvous);
  const Domain domain(c.table, rendezvous.table(), settings_for_own_memory(c, 3000 * kMs));
  const Group world(domain, all_ranks(c.world));
  Floats a(c, domain, 300'000, 1.0f), b(c, domain, 300'000, 0.0f);
  Plan plan(world, {{TENON_COMM_ALL_REDUCE, TENON_F32, a.data(), b.data(), a.size()}});
  plan.run();
  c.meet("all have the result");
  const int victim = c.world - 1;
  if (c.rank == victim) _exit(0);
  // Nobody hangs, and nobody needs the timeout.
  expect_failure([&] { plan.run(); }, {TENON_E_PEER}, {"all_reduce sum f32[300000]", rank_text(victim)});
}

// The last rank freezes (SIGSTOP) somewhere within a large all_reduce and later goes on: by then the others
// own their memory again, and whatever it still sends must not touch it.
void a_rank_freezes(const RankContext& c) {
  const run::RendezvousTable rendezvous(c.rendezvous);
  const Domain domain(c.table, rendezvous.table(), settings_for_own_memory(c));
  const Group world(domain, all_ranks(c.world));
  Floats a(c, domain, 3'000'000, 1.0f), b(c, domain, 3'000'000, 0.0f);
  Plan plan(world, {{TENON_COMM_ALL_REDUCE, TENON_F32, a.data(), b.data(), a.size()}});
  const int victim = c.world - 1;
  std::jthread waker;  // ends before the victim may: after the last meeting
  const auto run_for_ever = [&] {
    while (true) {
      plan.start();
      plan.wait(1000 * kMs);
    }
  };
  plan.run();
  if (c.rank == victim) {
    if (!c.rendezvous.set("pid of the victim", std::to_string(getpid())).ok())
      throw std::runtime_error("set failed");
    std::thread stopper([] {
      std::this_thread::sleep_for(std::chrono::microseconds(getpid() % 37 * 500));
      kill(getpid(), SIGSTOP);
    });
    try {
      expect_failure(run_for_ever, {TENON_E_TIMEOUT, TENON_E_PEER}, {"all_reduce"});
    } catch (...) {
      stopper.join();
      throw;
    }
    stopper.join();
  } else {
    const pid_t pid = std::stoi(c.rendezvous.get("pid of the victim", 20'000 * kMs).value());
    // Of more than two, who is named may be one that itself waits for the victim, whose message to us has
    // come.
    const std::string named = c.world == 2 ? rank_text(victim) : "; ";
    expect_failure(run_for_ever, {TENON_E_TIMEOUT, TENON_E_PEER}, {"all_reduce", named});
    std::fill(b.begin(), b.end(), 7.0f);
    const Status met = run::barrier(c.rendezvous, "survivors", c.rank, c.world - 1, 20'000 * kMs);
    if (!met.ok()) throw std::runtime_error(met.error().text());
    // Again and again: on a busy machine the others may give up before the victim has come to stop itself.
    if (c.rank == 0)
      waker = std::jthread([pid](const std::stop_token& stop) {
        for (; !stop.stop_requested(); std::this_thread::sleep_for(std::chrono::milliseconds(10)))
          kill(pid, SIGCONT);
      });
    for (int i = 0; i < 100; ++i) {
      expect_failure([&] { (void)plan.test(); }, {TENON_E_TIMEOUT, TENON_E_PEER}, {"all_reduce"});
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    for (const float value : b) {
      if (value != 7.0f) throw std::runtime_error("memory of a failed operation was written later");
    }
  }
  c.meet("done");
}

// The last rank is killed somewhere within a large all_reduce, again and again another place.
void a_rank_is_killed(const RankContext& c) {
  const run::RendezvousTable rendezvous(c.rendezvous);
  const Domain domain(c.table, rendezvous.table(), settings_for_own_memory(c));
  const Group world(domain, all_ranks(c.world));
  Floats a(c, domain, 3'000'000, 1.0f), b(c, domain, 3'000'000, 0.0f);
  Plan plan(world, {{TENON_COMM_ALL_REDUCE, TENON_F32, a.data(), b.data(), a.size()}});
  plan.run();
  c.meet("all have the result");
  if (c.rank == c.world - 1) {
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::microseconds(getpid() % 37 * 1000));
      kill(getpid(), SIGKILL);
    }).detach();
    while (true) plan.run();
  }
  const auto run_for_ever = [&] {
    while (true) plan.run();
  };
  expect_failure(run_for_ever, {TENON_E_PEER}, {"all_reduce sum f32[3000000]", rank_text(c.world - 1)});
}

}  // namespace tenon::test
