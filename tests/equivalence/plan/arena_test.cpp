// How much memory a plan needs, against bounds that are computed from the list alone: what is alive at each
// instruction, by name and size of the buffers, without lifetimes(), Order or offsets.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "strategy_programs.hpp"

namespace tenon::test {
namespace {

using Which = std::function<bool(const Program&, BufferId)>;

// The first and the last instruction of the list that touches each buffer of the arena.
struct Use {
  InstrId first = kNone, last = 0;
};
std::vector<Use> uses_of(const Program& program) {
  std::vector<Use> out(program.buffers.size());
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    const Instr& instr = program.instrs[id];
    const auto touch = [&](const Operand& operand) {
      if (operand.buffer == kNone || program.buffers[operand.buffer].space != Space::arena) return;
      Use& use = out[operand.buffer];
      use.first = std::min(use.first, id);
      use.last = id;
    };
    std::ranges::for_each(instr.in, touch);
    std::ranges::for_each(instr.out, touch);
    touch(instr.workspace);
  }
  return out;
}

// The most bytes that are alive together, of some buffers; transfers take no time.
uint64_t peak(const Program& program, const Which& which) {
  std::vector<int64_t> change(program.instrs.size() + 1);
  const std::vector<Use> uses = uses_of(program);
  for (BufferId id = 0; id < uses.size(); ++id) {
    if (uses[id].first == kNone || !which(program, id)) continue;
    const auto bytes = static_cast<int64_t>(aligned(program.buffers[id].bytes));
    change[uses[id].first] += bytes;
    change[uses[id].last + 1] -= bytes;
  }
  int64_t alive = 0, most = 0;
  for (int64_t step : change) most = std::max(most, alive += step);
  return static_cast<uint64_t>(most);
}

bool is_gradient(const Program& program, BufferId id) {
  const std::string& name = program.buffers[id].name;
  return name.starts_with("grads.") || name.starts_with("grad_part.");
}
bool is_gathered(const Program& program, BufferId id) {
  return program.buffers[id].name.starts_with("gathered.");
}
uint64_t activations(const Program& program) {
  return peak(program,
              [](const Program& p, BufferId id) { return !is_gradient(p, id) && !is_gathered(p, id); });
}

uint64_t arena(const Program& program) { return program.space_bytes[static_cast<size_t>(Space::arena)]; }

Compiled compiled(const Json& document, int world, uint32_t window, uint64_t bucket_bytes) {
  return compile_document(document, world, [&](CompileOptions& options) {
    options.window.transfers = window;
    options.bucket_bytes = bucket_bytes;
  });
}

// -- data parallelism -------------------------------------------------------------------------------

struct Case {
  int stage, dp, microbatches;
  uint32_t window;
};

class DataParallelArena : public testing::TestWithParam<Case> {};

// Layers that are alike, of the size of a few buckets each.
Json model_of_layers(int layers, int width, int context) {
  TinyModel model;
  model.layers = layers, model.width = width, model.ffn = 4 * width, model.groups = 4, model.head = width / 4;
  model.context = context, model.vocab = 256, model.tied = false;
  return tiny_recipe(llama_model(model), "none", context);
}

TEST_P(DataParallelArena, is_activations_and_gradients_and_a_window_of_buckets) {
  const Case& c = GetParam();
  Json document = model_of_layers(8, 64, 32);
  document["batch"] = 2 * c.dp * c.microbatches;
  document["microbatches"] = c.microbatches;
  document["mesh"] = Json::array({Json::array({"dp", c.dp})});
  if (c.stage > 0)
    document["strategies"].push_back({{"plugin", "parallel/zero"}, {"options", {{"stage", c.stage}}}});
  const Compiled made = compiled(document, c.dp, c.window, 64 << 10);
  const Program& program = made.programs.front();
  uint64_t gradients = 0, bucket = 0;
  for (const FlatLayout& layout : program.layouts) {
    const uint64_t bytes = static_cast<uint64_t>(layout.elements) * sizeof(float);
    gradients += bytes;
    bucket = std::max(bucket, bytes);
  }
  ASSERT_GT(gradients, 12 * bucket) << "the window would be all there is";
  if (c.stage > 1) gradients /= static_cast<uint64_t>(c.dp);
  uint64_t bound = activations(program) + gradients;
  if (c.stage > 0) bound += (1 + c.window) * bucket;
  if (c.stage > 2) bound += (1 + c.window) * bucket;
  const double share = static_cast<double>(arena(program)) / static_cast<double>(bound);
  std::printf("arena: %.3f of the bound\n", share);
  EXPECT_LE(share, 1.05);
}

std::vector<Case> data_parallel_cases() {
  std::vector<Case> out;
  for (int stage : {0, 1, 2, 3})
    for (int dp : {4, 8})
      for (int microbatches : {1, 4})
        for (uint32_t window : {1u, 3u}) out.push_back({stage, dp, microbatches, window});
  return out;
}
INSTANTIATE_TEST_SUITE_P(cases, DataParallelArena, testing::ValuesIn(data_parallel_cases()),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return fmt::format("zero{}_dp{}_mb{}_window{}", c.stage, c.dp, c.microbatches,
                                              c.window);
                         });

// -- pipelines --------------------------------------------------------------------------------------

constexpr int kRanks = 4;

// How many activations a schedule's page says that a rank keeps at most, and what share of a rank's stages
// one is of.
struct Kept {
  const char* schedule;
  int stages_per_rank;
  double (*most)(int rank, int microbatches);
};
const Kept kKept[] = {
    {"gpipe", 1, [](int, int m) { return 1.0 * m; }},
    {"1f1b", 1, [](int rank, int) { return 1.0 * (kRanks - rank); }},
    {"zb-h1", 1, [](int, int) { return 1.0 * kRanks; }},
    {"interleaved", 2, [](int, int) { return kRanks + 2.0 * kRanks - 1; }},
    {"zb-v", 2, [](int, int) { return 2.0 * kRanks; }},
    {"dualpipe-v", 2, [](int, int) { return 2.0 * kRanks + 1; }},
};

Compiled pipeline(const Kept& kept, int microbatches) {
  Json document = model_of_layers(8, 32, 16);
  document["batch"] = 2 * microbatches;
  document["microbatches"] = microbatches;
  document["mesh"] = Json::array({Json::array({"pp", kRanks})});
  document["strategies"] = Json::array(
      {{{"plugin", "parallel/pipeline"}, {"options", {{"stages_per_rank", kept.stages_per_rank}}}}});
  document["schedule"] = {{"plugin", fmt::format("schedule/{}", kept.schedule)}, {"options", Json::object()}};
  return compiled(document, kRanks, LaneWindow().transfers, 64 << 10);
}

// Of the microbatch of which most is alive at once: what its own instructions write.
uint64_t activations_of_a_microbatch(const Program& program) {
  const std::vector<Use> uses = uses_of(program);
  uint64_t most = 0;
  for (int microbatch = 0; microbatch < program.microbatches; ++microbatch) {
    most = std::max(most, peak(program, [&](const Program& p, BufferId id) {
                      return p.instrs[uses[id].first].microbatch == microbatch && !is_gradient(p, id);
                    }));
  }
  return most;
}

uint64_t bytes_of_windows(const Program& program) {
  std::vector<uint64_t> largest(program.lanes.size());
  for (const Instr& instr : program.instrs)
    if (instr.lane != 0) largest[instr.lane] = std::max(largest[instr.lane], bytes_in_flight(instr));
  uint64_t out = 0;
  for (uint64_t bytes : largest) out += program.window.transfers * aligned(bytes);
  return out;
}

class PipelineArena : public testing::TestWithParam<Kept> {};

TEST_P(PipelineArena, is_what_the_schedules_page_says) {
  const Kept& kept = GetParam();
  for (int microbatches : {16, 64}) {
    const Compiled made = pipeline(kept, microbatches);
    for (int rank = 0; rank < kRanks; ++rank) {
      const Program& program = made.programs[static_cast<size_t>(rank)];
      const double rest = static_cast<double>(arena(program) - peak(program, is_gradient));
      const double one = static_cast<double>(activations_of_a_microbatch(program)) / kept.stages_per_rank;
      const double bound =
          kept.most(rank, microbatches) * one + static_cast<double>(bytes_of_windows(program));
      std::printf("rank %d, %d microbatches: %.3f of the bound\n", rank, microbatches, rest / bound);
      EXPECT_LE(rest, bound) << "rank " << rank << ", " << microbatches << " microbatches: " << rest / one
                             << " activations, window "
                             << static_cast<double>(bytes_of_windows(program)) / one;
    }
  }
}

TEST_P(PipelineArena, does_not_grow_with_the_microbatches) {
  const Kept& kept = GetParam();
  if (kept.most(0, 64) > kept.most(0, 16)) GTEST_SKIP() << "this one keeps all microbatches";
  const Compiled few = pipeline(kept, 16), many = pipeline(kept, 64);
  for (size_t rank = 0; rank < kRanks; ++rank)
    EXPECT_LE(static_cast<double>(arena(many.programs[rank])),
              1.01 * static_cast<double>(arena(few.programs[rank])))
        << rank;
}

INSTANTIATE_TEST_SUITE_P(schedules, PipelineArena, testing::ValuesIn(kKept), [](const auto& info) {
  std::string name = info.param.schedule;
  std::ranges::replace(name, '-', '_');
  return name;
});

// -- rings ------------------------------------------------------------------------------------------

TEST(RingArena, does_not_grow_with_the_ring) {
  const auto of_ranks = [](int ranks) {
    Json document = model_of_layers(2, 32, 16 * ranks);
    document["batch"] = 2;
    document["mesh"] = Json::array({Json::array({"cp", ranks})});
    document["strategies"] =
        Json::array({{{"plugin", "parallel/context"}, {"options", {{"exchange", "ring"}}}}});
    return arena(compiled(document, ranks, LaneWindow().transfers, 64 << 10).programs.front());
  };
  const uint64_t at_8 = of_ranks(8);
  EXPECT_LE(static_cast<double>(of_ranks(16)), 1.02 * static_cast<double>(at_8));
  EXPECT_LE(static_cast<double>(of_ranks(32)), 1.02 * static_cast<double>(at_8));
}

}  // namespace
}  // namespace tenon::test
