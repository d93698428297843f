// Results: every kind and dtype against the serial reference, groups, plans in flight, repeated starts.
#include "scenarios.h"

#include <algorithm>
#include <numeric>
#include <thread>

#include "values.h"

namespace tenon::test {

namespace {

constexpr uint32_t kDtypes[] = {TENON_F64, TENON_F32, TENON_BF16, TENON_F16, TENON_I64, TENON_I32, TENON_U8};
constexpr uint64_t kCounts[] = {0, 1, 3, 17, 2051};  // odd sizes; 2051 spans several blocks of the tree

bool has_reduction(uint32_t dtype, uint32_t reduce) {
  if (dtype == TENON_F16) return false;
  return !(dtype == TENON_U8 && reduce == TENON_SUM);
}

void run(const Group& group, const OpSpec& spec) { Plan(group, {spec}).run(); }

std::vector<Bytes> inputs(const Group& g, uint32_t dtype, uint64_t count, uint64_t seed) {
  std::vector<Bytes> out;
  for (int m = 0; m < g.size(); ++m) out.push_back(input(dtype, count, seed, g.rank_of(m)));
  return out;
}

std::string label(const char* kind, uint32_t dtype, uint64_t count, const Group& g) {
  return std::string(kind) + " dtype " + std::to_string(dtype) + " count " + std::to_string(count) +
         " member " + std::to_string(g.me()) + " of " + std::to_string(g.size());
}

uint64_t total(const std::vector<uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

uint64_t before(const std::vector<uint64_t>& counts, int member) {
  return std::accumulate(counts.begin(), counts.begin() + member, uint64_t{0});
}

// Uneven parts, some of them empty, the same on every member.
std::vector<uint64_t> uneven(int n, uint64_t count, uint64_t seed) {
  std::vector<uint64_t> out;
  for (int i = 0; i < n; ++i) {
    const uint64_t h = mix(seed * 31 + static_cast<uint64_t>(i));
    out.push_back(h % 4 == 0 ? 0 : h % (count + 1));
  }
  return out;
}

void all_reduce(const Group& g, uint32_t dtype, uint64_t count, uint32_t reduce) {
  const uint64_t seed = 1 + count * 3 + reduce;
  const std::vector<Bytes> x = inputs(g, dtype, count, seed);
  const Bytes expected = reduce_all(x, reduce, dtype);
  const Bytes& mine = x[static_cast<size_t>(g.me())];
  Bytes dst(mine.size());
  run(g, {TENON_COMM_ALL_REDUCE, dtype, mine.data(), dst.data(), count, {}, 0, reduce});
  expect_bytes(dst, expected, label("all_reduce", dtype, count, g));
  expect_bytes(mine, input(dtype, count, seed, g.rank_of(g.me())), "source of all_reduce");
  Bytes place = mine;
  run(g, {TENON_COMM_ALL_REDUCE, dtype, place.data(), place.data(), count, {}, 0, reduce});
  expect_bytes(place, expected, label("all_reduce in place", dtype, count, g));
}

void reduce_scatter(const Group& g, uint32_t dtype, const std::vector<uint64_t>& counts, uint32_t reduce) {
  const uint64_t sum = total(counts);
  const std::vector<Bytes> x = inputs(g, dtype, sum, 5 + sum + reduce);
  const size_t element = size_of(dtype);
  const uint64_t mine = counts[static_cast<size_t>(g.me())];
  Bytes dst(mine * element);
  run(g, {TENON_COMM_REDUCE_SCATTER, dtype, x[static_cast<size_t>(g.me())].data(), dst.data(), 0, counts, 0,
          reduce});
  const Bytes all = reduce_all(x, reduce, dtype);
  expect_bytes(dst, slice(all, before(counts, g.me()) * element, mine * element),
               label("reduce_scatter", dtype, sum, g));
}

void all_gather(const Group& g, uint32_t dtype, const std::vector<uint64_t>& counts) {
  Bytes expected;
  for (int m = 0; m < g.size(); ++m) {
    const Bytes part = input(dtype, counts[static_cast<size_t>(m)], 7, g.rank_of(m));
    expected.insert(expected.end(), part.begin(), part.end());
  }
  const Bytes src = input(dtype, counts[static_cast<size_t>(g.me())], 7, g.rank_of(g.me()));
  Bytes dst(expected.size());
  run(g, {TENON_COMM_ALL_GATHER, dtype, src.data(), dst.data(), 0, counts});
  expect_bytes(dst, expected, label("all_gather", dtype, total(counts), g));
}

void broadcast(const Group& g, uint32_t dtype, uint64_t count, int root) {
  const Bytes expected = input(dtype, count, 11, g.rank_of(root));
  const bool is_root = g.me() == root;
  const Bytes src = is_root ? expected : Bytes();
  Bytes dst(expected.size());
  run(g, {TENON_COMM_BROADCAST, dtype, src.data(), dst.data(), count, {}, root});
  expect_bytes(dst, expected, label("broadcast", dtype, count, g));
  Bytes place = is_root ? expected : Bytes(expected.size());
  run(g, {TENON_COMM_BROADCAST, dtype, place.data(), place.data(), count, {}, root});
  expect_bytes(place, expected, label("broadcast in place", dtype, count, g));
}

// What member a sends to member b.
uint64_t pair_count(int a, int b, uint64_t count) {
  const uint64_t h = mix(static_cast<uint64_t>(a * 64 + b));
  return h % 5 == 0 ? 0 : h % (count + 1);
}

void all_to_all(const Group& g, uint32_t dtype, uint64_t count) {
  std::vector<uint64_t> counts;
  for (int m = 0; m < g.size(); ++m) counts.push_back(pair_count(g.me(), m, count));
  for (int m = 0; m < g.size(); ++m) counts.push_back(pair_count(m, g.me(), count));
  Bytes expected;
  const size_t element = size_of(dtype);
  for (int m = 0; m < g.size(); ++m) {
    uint64_t begin = 0, all = 0;
    for (int k = 0; k < g.size(); ++k) {
      if (k < g.me()) begin += pair_count(m, k, count);
      all += pair_count(m, k, count);
    }
    const Bytes part =
        slice(input(dtype, all, 13, g.rank_of(m)), begin * element, pair_count(m, g.me(), count) * element);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  const std::vector<uint64_t> sent(counts.begin(), counts.begin() + g.size());
  const Bytes src = input(dtype, total(sent), 13, g.rank_of(g.me()));
  Bytes dst(expected.size());
  run(g, {TENON_COMM_ALL_TO_ALL, dtype, src.data(), dst.data(), 0, counts});
  expect_bytes(dst, expected, label("all_to_all", dtype, count, g));
}

void permute(const Group& g, uint32_t dtype, uint64_t count, int shift) {
  const Bytes src = input(dtype, count, 17, g.rank_of(g.me()));
  Bytes dst(src.size());
  run(g, {TENON_COMM_PERMUTE, dtype, src.data(), dst.data(), count, {}, shift});
  const int n = g.size();
  const int from = (((g.me() - shift) % n) + n) % n;
  expect_bytes(dst, input(dtype, count, 17, g.rank_of(from)), label("permute", dtype, count, g));
}

// Along a line: everyone but the last sends, everyone but the first receives, in separate plans.
void send_recv(const Group& g, uint32_t dtype, uint64_t count) {
  const Bytes src = input(dtype, count, 19, g.rank_of(g.me()));
  Bytes dst(src.size());
  if (g.me() > 0) {
    run(g, {TENON_COMM_RECV, dtype, nullptr, dst.data(), count, {}, g.me() - 1});
    expect_bytes(dst, input(dtype, count, 19, g.rank_of(g.me() - 1)), label("recv", dtype, count, g));
  }
  if (g.me() + 1 < g.size()) run(g, {TENON_COMM_SEND, dtype, src.data(), nullptr, count, {}, g.me() + 1});
}

void everything(const Group& g, uint32_t dtype, uint64_t count) {
  const int n = g.size();
  for (const uint32_t reduce : {TENON_SUM, TENON_MAX, TENON_MIN}) {
    if (!has_reduction(dtype, reduce)) continue;
    all_reduce(g, dtype, count, reduce);
    reduce_scatter(g, dtype, std::vector<uint64_t>(static_cast<size_t>(n), count), reduce);
    reduce_scatter(g, dtype, uneven(n, count, 3), reduce);
  }
  all_gather(g, dtype, std::vector<uint64_t>(static_cast<size_t>(n), count));
  all_gather(g, dtype, uneven(n, count, 4));
  for (const int root : {0, n - 1}) broadcast(g, dtype, count, root);
  all_to_all(g, dtype, count);
  for (const int shift : {0, 1, -1, n + 1}) permute(g, dtype, count, shift);
  send_recv(g, dtype, count);
  run(g, {});
}

// The reduced values of `group` for one seed, started and waited for by the caller.
struct Reduction {
  Reduction(const Group& group, uint64_t count, uint64_t seed)
      : expected(reduce_all(inputs(group, TENON_F32, count, seed), TENON_SUM, TENON_F32)),
        src(input(TENON_F32, count, seed, group.rank_of(group.me()))),
        dst(src.size()),
        plan(group, {{TENON_COMM_ALL_REDUCE, TENON_F32, src.data(), dst.data(), count}}) {}
  Bytes expected, src, dst;
  Plan plan;
};

}  // namespace

void RankContext::meet(const std::string& name) const {
  const Status status = run::barrier(rendezvous, name, rank, world, 30'000'000'000);
  if (!status.ok()) throw std::runtime_error(status.error().text());
}

void every_kind_matches_the_reference(const RankContext& c) {
  const run::RendezvousTable rendezvous(c.rendezvous);
  const Domain domain(c.table, rendezvous.table(), c.settings());
  const Group world(domain, all_ranks(c.world));
  for (const uint32_t dtype : kDtypes) {
    for (const uint64_t count : kCounts) everything(world, dtype, count);
  }
  // Large enough for every protocol of a transport. (The reference costs world * world.)
  if (c.world > 4) return;
  everything(world, TENON_F32, 70'001);
  all_reduce(world, TENON_BF16, 70'001, TENON_SUM);
  all_reduce(world, TENON_F32, 3'000'017, TENON_SUM);
}

void groups_work_side_by_side(const RankContext& c) {
  const run::RendezvousTable rendezvous(c.rendezvous);
  const Domain domain(c.table, rendezvous.table(), c.settings());
  std::vector<int32_t> same_parity, reversed = all_ranks(c.world);
  for (int r = c.rank % 2; r < c.world; r += 2) same_parity.push_back(r);
  std::reverse(reversed.begin(), reversed.end());
  const Group parity(domain, same_parity), backwards(domain, reversed), forwards(domain, all_ranks(c.world));
  const Group again(domain, all_ranks(c.world)), alone(domain, {c.rank});
  for (uint64_t round = 0; round < 5; ++round) {
    Reduction a(parity, 1000, round), b(backwards, 5000, round), d(forwards, 5000, round + 1),
        e(again, 7, round);
    Reduction f(alone, 9, round);
    for (Reduction* r : {&a, &b, &d, &e, &f}) r->plan.start();
    for (Reduction* r : {&f, &e, &b, &d, &a}) r->plan.wait();
    for (Reduction* r : {&a, &b, &d, &e, &f}) expect_bytes(r->dst, r->expected, "groups side by side");
  }
  for (const Group* g : {&parity, &backwards, &alone}) everything(*g, TENON_F32, 333);
}

void many_plans_are_in_flight(const RankContext& c) {
  const run::RendezvousTable rendezvous(c.rendezvous);
  const Domain domain(c.table, rendezvous.table(), c.settings());
  const Group world(domain, all_ranks(c.world));
  std::vector<std::unique_ptr<Reduction>> reductions;
  for (uint64_t i = 0; i < 40; ++i)
    reductions.push_back(std::make_unique<Reduction>(world, i * 977 % 20011, i));
  // A ring of sends and receives as one plan, and two collectives as another, among them.
  const uint64_t count = 3001;
  const int next = (c.rank + 1) % c.world, previous = (c.rank + c.world - 1) % c.world;
  const Bytes mine = input(TENON_I32, count, 99, c.rank);
  Bytes from_previous(mine.size()), from_next(mine.size()),
      gathered(mine.size() * static_cast<size_t>(c.world));
  Bytes greatest(mine.size());
  Plan ring(world, {{TENON_COMM_RECV, TENON_I32, nullptr, from_previous.data(), count, {}, previous},
                    {TENON_COMM_SEND, TENON_I32, mine.data(), nullptr, count, {}, next},
                    {TENON_COMM_PERMUTE, TENON_I32, mine.data(), from_next.data(), count, {}, -1}});
  const std::vector<uint64_t> counts(static_cast<size_t>(c.world), count);
  Plan both(world,
            {{TENON_COMM_ALL_GATHER, TENON_I32, mine.data(), gathered.data(), 0, counts},
             {TENON_COMM_ALL_REDUCE, TENON_I32, mine.data(), greatest.data(), count, {}, 0, TENON_MAX}});
  for (size_t i = 0; i < 20; ++i) reductions[i]->plan.start();
  ring.start();
  both.start();
  for (size_t i = 20; i < 40; ++i) reductions[i]->plan.start();
  for (size_t i = 40; i-- > 0;) reductions[i]->plan.wait();
  both.wait();
  ring.wait();
  for (const auto& r : reductions) expect_bytes(r->dst, r->expected, "a plan among many");
  expect_bytes(from_previous, input(TENON_I32, count, 99, previous), "received in a ring");
  expect_bytes(from_next, input(TENON_I32, count, 99, next), "permuted backwards");
  expect_bytes(greatest, reduce_all(inputs(world, TENON_I32, count, 99), TENON_MAX, TENON_I32), "maximum");
  expect_bytes(slice(gathered, mine.size() * static_cast<size_t>(previous), mine.size()), from_previous,
               "gathered");
}

void one_plan_starts_many_times(const RankContext& c) {
  const run::RendezvousTable rendezvous(c.rendezvous);
  const Domain domain(c.table, rendezvous.table(), c.settings());
  const Group world(domain, all_ranks(c.world));
  constexpr uint64_t kCount = 2048;
  void* memory = nullptr;
  tenon_error error = empty_error();
  check(c.table.alloc(domain.get(), kCount * sizeof(float), &memory, &error), error);
  if (reinterpret_cast<uintptr_t>(memory) % 64 != 0)
    throw std::runtime_error("alloc is not aligned to 64 bytes");
  for (uint64_t i = 0; i < kCount; ++i) {
    if (static_cast<float*>(memory)[i] != 0) throw std::runtime_error("alloc is not zeroed");
  }
  {
    Plan plan(world, {{TENON_COMM_ALL_REDUCE, TENON_F32, memory, memory, kCount}});
    for (uint64_t step = 0; step < 60; ++step) {
      const Bytes mine = input(TENON_F32, kCount, step, c.rank);
      std::memcpy(memory, mine.data(), mine.size());
      plan.start();
      if (step % 2 == 0) {
        while (!plan.test()) std::this_thread::yield();
      }
      plan.wait();
      const auto* bytes = static_cast<const std::byte*>(memory);
      expect_bytes(Bytes(bytes, bytes + mine.size()),
                   reduce_all(inputs(world, TENON_F32, kCount, step), TENON_SUM, TENON_F32),
                   "repeated start");
    }
  }
  c.table.free(domain.get(), memory);
}

const std::map<std::string, Scenario>& scenarios() {
  static const std::map<std::string, Scenario> all = {
      {"every_kind_matches_the_reference", every_kind_matches_the_reference},
      {"groups_work_side_by_side", groups_work_side_by_side},
      {"many_plans_are_in_flight", many_plans_are_in_flight},
      {"one_plan_starts_many_times", one_plan_starts_many_times},
      {"bad_operations_are_refused", bad_operations_are_refused},
      {"a_missing_member_is_named_after_the_timeout", a_missing_member_is_named_after_the_timeout},
      {"a_mismatch_names_both_sides", a_mismatch_names_both_sides},
      {"a_mismatched_message_names_both_ends", a_mismatched_message_names_both_ends},
      {"an_abort_reaches_whoever_comes_later", an_abort_reaches_whoever_comes_later},
      {"an_abort_gives_memory_back", an_abort_gives_memory_back},
      {"a_rank_stops", a_rank_stops},
      {"an_abort_ends_a_wait", an_abort_ends_a_wait},
      {"a_rank_dies", a_rank_dies},
      {"a_rank_freezes", a_rank_freezes},
      {"a_rank_is_killed", a_rank_is_killed},
  };
  return all;
}

}  // namespace tenon::test
