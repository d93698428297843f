// The memory plan of random programs on several lanes, against brute force over the order of execution.
#include "plan/finish/memory.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "plan/finish/waits.h"
#include "plan/verify/verify.h"

namespace tenon {
namespace {

class RandomProgram {
 public:
  explicit RandomProgram(uint64_t seed, int instrs = 60) : random_(seed) {
    program_.name = "random";
    program_.mesh = Mesh{{{"dp", 2}, {"tp", 2}}};
    program_.lanes = {"compute", "dp", "tp"};
    for (int i = 0; i < instrs; ++i) add_instr();
    program_.outputs["kept"] = program_.instrs[below(program_.instrs.size())].out[0];
    schedule_waits(program_);
    plan_memory(program_);
  }
  const Program& program() const { return program_; }

 private:
  uint64_t below(uint64_t n) { return random_() % n; }

  Operand fresh() {
    const auto n = static_cast<int64_t>(1 + below(200));
    program_.buffers.push_back(
        {"b" + std::to_string(program_.buffers.size()), Space::arena, static_cast<uint64_t>(n) * 4, 0});
    return {
        static_cast<BufferId>(program_.buffers.size() - 1), 0, Dtype::f32, {n}, program_.buffers.back().name};
  }

  void add_instr() {
    Instr instr;
    instr.lane = static_cast<uint32_t>(below(5));
    if (instr.lane > 2) instr.lane = 0;
    instr.kind = instr.lane == 0 ? "kernel" : "all_reduce";
    if (instr.lane > 0) instr.axes = {instr.lane - 1};
    if (!values_.empty()) {  // mostly a late one
      const size_t far = std::min<size_t>(values_.size(), below(16) == 0 ? values_.size() : 8);
      instr.in = {values_[values_.size() - 1 - below(far)]};
    }
    if (instr.lane > 0 && !instr.in.empty() && below(2) == 0) {
      instr.out = instr.in;  // in place
    } else {
      instr.out = {fresh()};
      values_.push_back(instr.out[0]);
    }
    program_.instrs.push_back(std::move(instr));
  }

  std::mt19937_64 random_;
  Program program_;
  std::vector<Operand> values_;
};

std::vector<std::vector<InstrId>> users_of(const Program& program) {
  std::vector<std::vector<InstrId>> out(program.buffers.size());
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    for (const Operand& o : program.instrs[id].in) out[o.buffer].push_back(id);
    for (const Operand& o : program.instrs[id].out) out[o.buffer].push_back(id);
  }
  return out;
}

// Every use of one is complete before any use of the other starts.
bool all_before(const Order& order, const std::vector<InstrId>& a, const std::vector<InstrId>& b) {
  for (InstrId x : a) {
    for (InstrId y : b) {
      if (!order.before(x, y)) return false;
    }
  }
  return true;
}

constexpr uint64_t kSeeds = 300;

TEST(memory_plan, shares_bytes_only_between_buffers_whose_uses_are_ordered) {
  uint64_t shared = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const RandomProgram random(seed);
    const Program& program = random.program();
    const Order order(program);
    const auto users = users_of(program);
    for (BufferId a = 0; a < program.buffers.size(); ++a) {
      for (BufferId b = 0; b < a; ++b) {
        const Buffer &x = program.buffers[a], &y = program.buffers[b];
        if (x.offset + x.bytes <= y.offset || y.offset + y.bytes <= x.offset) continue;
        ++shared;
        EXPECT_TRUE(all_before(order, users[a], users[b]) || all_before(order, users[b], users[a]))
            << "seed " << seed << ": " << x.name << " and " << y.name;
      }
    }
    EXPECT_TRUE(check_races(program).ok()) << seed << " " << check_races(program).error().text();
    EXPECT_TRUE(check_memory(program).ok()) << seed;
  }
  EXPECT_GT(shared, kSeeds);
}

// The lowest address at which no buffer lies that was placed before and lives at the same time.
std::vector<uint64_t> plain_first_fit(const Program& program) {
  const std::vector<Lifetime> life = lifetimes(program);
  std::vector<BufferId> order(program.buffers.size());
  std::iota(order.begin(), order.end(), BufferId{0});
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [&](BufferId id) { return program.buffers[id].bytes; });
  std::vector<uint64_t> at(program.buffers.size());
  std::vector<BufferId> placed;  // by address
  for (const BufferId id : order) {
    const uint64_t bytes = aligned(program.buffers[id].bytes);
    for (const BufferId other : placed) {
      if (!life[other].overlaps(life[id])) continue;
      if (at[other] >= at[id] + bytes) break;
      at[id] = std::max(at[id], at[other] + aligned(program.buffers[other].bytes));
    }
    placed.insert(std::ranges::upper_bound(placed, at[id], {}, [&](BufferId other) { return at[other]; }),
                  id);
  }
  return at;
}

// Long enough for lists of several blocks and for lives of every length.
TEST(memory_plan, is_that_of_a_plain_first_fit) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const RandomProgram random(seed, 6000);
    const Program& program = random.program();
    const std::vector<uint64_t> expected = plain_first_fit(program);
    for (BufferId id = 0; id < program.buffers.size(); ++id)
      ASSERT_EQ(program.buffers[id].offset, expected[id])
          << "seed " << seed << ", " << program.buffers[id].name;
  }
}

// No plan can be smaller than what a compute instruction finds alive.
TEST(memory_plan, is_no_smaller_than_the_live_bytes_and_not_much_larger) {
  double worst = 1, total = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const RandomProgram random(seed);
    const Program& program = random.program();
    const std::vector<Lifetime> life = lifetimes(program);
    uint64_t most = 0;
    for (uint64_t at = 0; at < program.instrs.size(); ++at) {
      uint64_t live = 0;
      for (BufferId id = 0; id < program.buffers.size(); ++id) {
        if (life[id].lo <= at && at <= life[id].hi) live += aligned(program.buffers[id].bytes);
      }
      most = std::max(most, live);
    }
    const uint64_t peak = program.space_bytes[static_cast<size_t>(Space::arena)];
    EXPECT_GE(peak, most) << seed;
    const double ratio = static_cast<double>(peak) / static_cast<double>(most);
    worst = std::max(worst, ratio);
    total += ratio;
  }
  std::printf("peak to live bytes: mean %.3f, worst %.3f\n", total / kSeeds, worst);
  EXPECT_LE(total / kSeeds, 1.15);
}

TEST(lifetimes, of_a_transfer_begin_at_its_place_and_end_where_something_waits_for_it) {
  Program program;
  program.mesh = Mesh{{{"dp", 2}, {"tp", 2}}};
  program.lanes = {"compute", "dp", "tp"};
  const auto buffer = [&program](const char* name) {
    program.buffers.push_back({name, Space::arena, 64, 0});
    return Operand{static_cast<BufferId>(program.buffers.size() - 1), 0, Dtype::f32, {16}, name};
  };
  const Operand a = buffer("a"), b = buffer("b"), c = buffer("c"), d = buffer("d");
  const auto instr = [&program](uint32_t lane, std::vector<Operand> in, std::vector<Operand> out) {
    Instr instr;
    instr.kind = lane == 0 ? "kernel" : "all_reduce";
    instr.lane = lane;
    instr.in = std::move(in);
    instr.out = std::move(out);
    program.instrs.push_back(std::move(instr));
  };
  instr(0, {}, {a});   // 0
  instr(1, {a}, {a});  // 1, behind 0
  instr(0, {}, {b});   // 2, beside the transfer
  instr(2, {b}, {b});  // 3, on another lane, behind 2: nothing orders it after the first transfer
  instr(0, {a}, {c});  // 4 waits for the first transfer
  instr(0, {b}, {d});  // 5 waits for the second
  schedule_waits(program);
  EXPECT_EQ(program.instrs[3].waits, std::vector<InstrId>());
  EXPECT_EQ(program.instrs[4].waits, std::vector<InstrId>{1});
  const auto life = lifetimes(program);
  const auto is = [&life](size_t buffer, uint64_t lo, uint64_t hi) {
    return life[buffer].lo == lo && life[buffer].hi == hi;
  };
  EXPECT_TRUE(is(0, 0, 4));
  EXPECT_TRUE(is(1, 2, 5));
  EXPECT_TRUE(is(2, 4, 4));
  EXPECT_TRUE(life[0].overlaps(life[1]));
}

// What one instruction waits for is complete for all that is listed behind it, on whatever lane.
TEST(Order, is_that_of_one_stream) {
  Program program;
  program.lanes = {"compute", "dp", "tp"};
  program.instrs.resize(6);
  for (InstrId id : {1u, 2u, 4u}) program.instrs[id].lane = id == 2 ? 2 : 1;
  program.instrs[3].waits = {1};
  program.instrs[5].waits = {4};
  const Order order(program);
  EXPECT_TRUE(order.before(0, 1)) << "a transfer starts behind the work that is listed before it";
  EXPECT_FALSE(order.before(1, 2)) << "transfers of two lanes are in flight together";
  EXPECT_TRUE(order.before(1, 3));
  EXPECT_TRUE(order.before(1, 4)) << "what 3 waited for is over for 4";
  EXPECT_FALSE(order.before(2, 5)) << "nobody waits for it";
  EXPECT_EQ(order.behind(2), 6u);
  EXPECT_TRUE(order.before(4, 5));
}

// gradient_of() reads them after the step, whatever the step does behind an update.
TEST(Lifetimes, of_gradients_that_updates_read_last_to_the_end) {
  Program program;
  program.lanes = {"compute"};
  program.mesh = Mesh{{{"dp", 1}}};
  const auto value = [&](const std::string& name) {
    program.buffers.push_back({name, Space::arena, 64, 0});
    return Operand{static_cast<BufferId>(program.buffers.size() - 1), 0, Dtype::f32, {16}, name};
  };
  const auto emit = [&](const std::string& kind, const std::vector<Operand>& in,
                        const std::vector<Operand>& out) {
    Instr& instr = program.instrs.emplace_back();
    instr.kind = kind;
    instr.in = in;
    instr.out = out;
  };
  const Operand grad = value("grad"), param = value("param"), later = value("later"), scale = value("scale");
  emit("kernel", {}, {grad, scale});
  emit("update", {grad, scale}, {param});
  emit("kernel", {}, {later});
  schedule_waits(program);
  plan_memory(program);
  EXPECT_NE(program.buffers[grad.buffer].offset, program.buffers[later.buffer].offset);
  EXPECT_EQ(program.buffers[param.buffer].offset, program.buffers[later.buffer].offset);
}

}  // namespace
}  // namespace tenon
