#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "bench/bare.h"
#include "bench/idle.h"
#include "bench/probes.h"
#include "bench/work.h"
#include "run/rendezvous/memory_rendezvous.h"

namespace tenon::bench {
namespace {

Operand operand(std::vector<int64_t> dims, Dtype dtype = Dtype::f32) {
  return {0, 0, dtype, std::move(dims), ""};
}

Instr instr(const std::string& kind, std::vector<Operand> in, std::vector<Operand> out) {
  Instr made;
  made.kind = kind;
  made.in = std::move(in);
  made.out = std::move(out);
  return made;
}

TEST(Work, names_a_product_by_rows_outputs_and_sum) {
  const auto y = operand({2, 3, 5, 7}), x = operand({2, 3, 11}), w = operand({5, 7, 11});
  EXPECT_EQ(work_of(instr("linear", {x, w}, {y})).name, "linear 6 x 35 x 11");
  EXPECT_EQ(work_of(instr("linear_dgrad", {y, w}, {x})).name, "linear_dgrad 6 x 11 x 35");
  EXPECT_EQ(work_of(instr("linear_wgrad", {y, x}, {w})).name, "linear_wgrad 35 x 11 x 6");
  EXPECT_EQ(work_of(instr("gelu", {x}, {x})).name, "gelu [2 3 11]");
  EXPECT_EQ(work_of(instr("sqnorm", {x}, {operand({}, Dtype::f64)})).name, "sqnorm [2 3 11]");
}

TEST(Work, counts_each_operand_once_and_what_is_added_to_twice) {
  const auto x = operand({4, 8});
  EXPECT_EQ(work_of(instr("add", {x, x}, {x})).bytes, 3 * 128);
  Instr gradient = instr("layernorm_wgrad", {x}, {operand({8})});
  EXPECT_EQ(work_of(gradient).bytes, 128 + 32);
  gradient.accumulate = true;
  EXPECT_EQ(work_of(gradient).bytes, 128 + 2 * 32);
  EXPECT_TRUE(work_of(gradient).name.ends_with(" +="));
  EXPECT_EQ(work_of(instr("update", {x, operand({}, Dtype::f64)}, {x, x})).bytes, 128 + 2 * 2 * 128);
}

TEST(Work, counts_only_the_rows_of_a_table_that_are_looked_up) {
  const auto ids = operand({1, 3}, Dtype::i32), table = operand({1000, 8}), y = operand({1, 3, 8});
  EXPECT_EQ(work_of(instr("embedding", {ids, table}, {y})).bytes, 12 + 96 + 96);
  Instr scatter = instr("embedding_wgrad", {y, ids}, {table});
  EXPECT_EQ(work_of(scatter).bytes, 96 + 12 + 32000) << "other rows become 0";
  scatter.accumulate = true;
  EXPECT_EQ(work_of(scatter).bytes, 96 + 12 + 2 * 96);
}

TEST(Work, counts_an_operation_of_f64_as_two) {
  Instr product = instr("linear", {operand({2, 2}, Dtype::f64), operand({2, 2}, Dtype::f64)},
                        {operand({2, 2}, Dtype::f64)});
  product.flops = 16;
  EXPECT_EQ(work_of(product).flops, 32);
}

TEST(IdleSwitch, calls_reach_the_plugins_unless_it_is_idle) {
  static int calls;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): tables take no state
  calls = 0;
  tenon_kernels kernels{};
  kernels.enqueue = [](auto...) -> tenon_code { return ++calls, TENON_OK; };
  tenon_comm comm{};
  comm.start = [](auto...) -> tenon_code { return ++calls, TENON_OK; };
  comm.wait_host = [](auto...) -> tenon_code { return ++calls, TENON_OK; };
  tenon_optimizer optimizer{};
  optimizer.step = [](auto...) -> tenon_code { return ++calls, TENON_OK; };
  PluginSet plugins;
  plugins.kernels.plugins.resize(2);
  for (auto& plugin : plugins.kernels.plugins) plugin.table = &kernels;
  plugins.comm.table = &comm;
  plugins.optimizer.table = &optimizer;
  IdleSwitch idle(plugins);
  const auto call_all = [&] {
    for (const auto& plugin : plugins.kernels.plugins)
      EXPECT_EQ(plugin.table->enqueue(nullptr, nullptr, nullptr, nullptr), TENON_OK);
    EXPECT_EQ(plugins.comm.table->start(nullptr, nullptr, nullptr), TENON_OK);
    EXPECT_EQ(plugins.comm.table->wait_host(nullptr, -1, nullptr), TENON_OK);
    EXPECT_EQ(plugins.optimizer.table->step(nullptr, nullptr, nullptr, 0, nullptr, nullptr), TENON_OK);
    return calls;
  };
  EXPECT_EQ(call_all(), 5);
  idle.set(true);
  EXPECT_EQ(call_all(), 5);
  idle.set(false);
  EXPECT_EQ(call_all(), 10);
}

TEST(SharedWorld, a_rank_that_leaves_ends_what_others_wait_for) {
  constexpr int64_t kWorld = 3;
  run::MemoryRendezvous rendezvous;
  std::vector<std::string> codes(kWorld);
  const auto rank_main = [&](int64_t rank) {
    auto world = SharedWorld::open({rank, kWorld}, rendezvous, 64);
    if (!world.ok()) return;
    codes[static_cast<size_t>(rank)] = (*world)->barrier().ok() ? "met" : "left";
    if (rank == 2) return;
    const Status status = (*world)->barrier();
    codes[static_cast<size_t>(rank)] += status.ok() ? "" : " " + status.error().code;
  };
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < kWorld; ++rank) threads.emplace_back(rank_main, rank);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(codes, (std::vector<std::string>{"met W011", "met W011", "met"}));
}

TEST(Probes, add_adds_every_element_once) {
  for (const int64_t count : {0, 1, 7, 100, 1001}) {
    std::vector<double> a(static_cast<size_t>(count) + 1, 1), b(static_cast<size_t>(count) + 1, 2);
    add(a.data(), b.data(), count);
    EXPECT_EQ(std::ranges::count(a, 3), count);
    EXPECT_EQ(a.back(), 1);
  }
}

bool machine_has(std::string_view isa) {
#if defined(__x86_64__)
  if (isa == "avx512") return __builtin_cpu_supports("avx512f") != 0;
  if (isa == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return isa == "baseline";
}

TEST(Probes, the_peak_is_of_the_instructions_asked_for_or_the_best_there_are) {
  std::string best;
  for (const char* isa : {"avx512", "avx2", "baseline"}) {
    if (!machine_has(isa)) continue;
    EXPECT_STREQ(peak_loops(isa).isa, isa);
    if (best.empty()) best = isa;
  }
  EXPECT_EQ(peak_loops("auto").isa, best);
  EXPECT_EQ(peak_loops("of another plugin").isa, best);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kInstrumented = true;  // each access is checked: a loop's speed is that of the checks
#else
constexpr bool kInstrumented = false;
#endif

// Twice as wide, and two operations in one instruction: four times, on a machine where nobody disturbs.
TEST(Probes, the_peak_of_avx2_is_above_that_of_any_machine) {
  if (!machine_has("avx2") || kInstrumented) GTEST_SKIP();
  const auto most = [](const PeakLoops& loop) {
    double out = 0;
    for (int i = 0; i < 20; ++i) {
      const double start = seconds_now();
      const double done = loop.multiply_adds();
      out = std::max(out, done / (seconds_now() - start));
    }
    return out;
  };
  EXPECT_GT(most(peak_loops("avx2")), 1.5 * most(peak_loops("baseline")));
}

TEST(Probes, the_instructions_are_those_that_the_option_isa_of_a_plugin_pins) {
  constexpr tenon_option_decl isa = {.struct_size = sizeof(tenon_option_decl),
                                     .kind = TENON_STRING,
                                     .name = "isa",
                                     .doc = "instruction set",
                                     .fallback = "auto",
                                     .choices = nullptr,
                                     .min = 1,
                                     .max = 0};
  const tenon_option_decl* const decls[] = {&isa};
  const auto read = [](OptionDecls declared, const Json& given) {
    return isa_of(*read_options(declared, given, "/options", "kernels/x"));
  };
  EXPECT_EQ(read(decls, {{"isa", "avx2"}}), "avx2");
  EXPECT_EQ(read(decls, Json::object()), "auto");
  EXPECT_EQ(read({}, Json::object()), "auto") << "no such option";
}

TEST(Probes, median_and_floor) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({5, 1, 9}), 5);
  const Rates rates{10, 100, {}};
  EXPECT_EQ(rates.seconds(20, 100), 2);
  EXPECT_EQ(rates.seconds(1, 300), 3);
  EXPECT_EQ(rates.seconds_again(1, 300), 3) << "not sampled";
}

TEST(Probes, what_is_in_the_caches_has_a_floor_of_its_own) {
  const double kib16 = Rates::size_of_step(0), kib23 = Rates::size_of_step(1), kib32 = Rates::size_of_step(2);
  EXPECT_EQ(kib16, 16384);
  EXPECT_EQ(kib32, 2 * kib16);
  const Rates rates{10, 100, {3000, 1000, 2000}};
  EXPECT_EQ(rates.seconds_again(0, 6000), 2) << "smaller than all";
  EXPECT_EQ(rates.seconds_again(0, 2 * kib16), 2 * kib16 / 3000);
  EXPECT_EQ(rates.seconds_again(0, 2 * kib23), 2 * kib23 / 2000) << "a larger one was faster: disturbed";
  EXPECT_EQ(rates.seconds_again(0, 2 * kib32), 2 * kib32 / 2000);
  EXPECT_EQ(rates.seconds_again(0, 1e9), 1e9 / 2000) << "larger than all";
  EXPECT_EQ(rates.seconds_again(1e9, 1), 1e8) << "operations";
  EXPECT_EQ(rates.seconds(0, 6000), 60);
}

TEST(Probes, the_rate_of_adding_again_is_above_that_of_memory) {
  auto pool = ThreadPool::create(1);
  ASSERT_TRUE(pool.ok());
  Probe probe(**pool, peak_loops("auto"));
  probe.sample();
  EXPECT_TRUE(probe.rates().again.empty());
  probe.sample_again();
  const Rates rates = probe.rates();
  ASSERT_EQ(rates.again.size(), 25u) << "16 KiB to 64 MiB";
  if (!kInstrumented) {
    EXPECT_GT(rates.again[0], rates.bytes);
  }
  probe.clear();
  EXPECT_EQ(probe.rates().flops, 0);
}

}  // namespace
}  // namespace tenon::bench
