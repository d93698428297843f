// traffic_page STRATEGY: the table on its page of what each rank sends, as the tests hold it against
// programs.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "traffic.h"

namespace tenon::test {
namespace {

struct Row {
  const char* name;
  Combination what;
};

const std::map<std::string, std::vector<Row>>& pages() {
  const auto of = [](const char* words, const char* axis, const char* model = "llama") {
    return Combination{"", model, {{axis, 4}}, words, "", 2};
  };
  static const std::map<std::string, std::vector<Row>> kPages{
      {"data", {{"all", of("data", "dp")}}},
      {"zero",
       {{"stage 1", of("data zero1", "dp")},
        {"stage 2", of("data zero2", "dp")},
        {"stage 3", of("data zero3", "dp")}}},
      {"tensor", {{"without `sequence`", of("tensor", "tp")}, {"with `sequence`", of("sequence", "tp")}}},
      {"context",
       {{"`ring`", of("ring", "cp")},
        {"`all_gather`", of("all_gather", "cp")},
        {"`all_to_all`", of("all_to_all", "cp")}}},
      {"expert", {{"all", of("data expert", "dp", "moe")}}},
      {"pipeline", {{"", of("pipeline", "pp")}}},
  };
  return kPages;
}

// "1,234,567"
std::string grouped(double bytes) {
  std::string out = fmt::format("{:.0f}", bytes);
  for (size_t at = out.size(); at > 3; at -= 3) out.insert(at - 3, ",");
  return out;
}

void print(const std::string& strategy) {
  const ModelSizes sizes{4, 512, 1024, 64, 256, 16, 256, 8, 64, 16, 4, 4 << 20};
  const bool experts = strategy == "expert";
  fmt::print(
      "In bytes a step, with padding, positions, norms and loss: a decoder of 4 layers, width 512, {} inner "
      "width 1024, "
      "vocabulary 256, context 256, batch 16 in 2 microbatches, f32, over 4 ranks.\n\n",
      experts ? "8 experts (64 tokens of a group have 16 slots at each) of"
              : "8 query heads for 4 key heads,");
  fmt::print(
      "| | lane | forward | input gradients | weight gradients | update |\n|---|---|---|---|---|---|\n");
  for (const Row& row : pages().at(strategy)) {
    const int64_t classes = strategy == "pipeline" ? row.what.mesh[0].second : 1;
    for (int64_t klass = 0; klass < classes; ++klass) {
      const Traffic traffic(row.what, sizes, klass);
      for (const std::string& lane : traffic.lanes()) {
        fmt::print("| {} | `{}` |", classes > 1 ? fmt::format("stage {}", klass) : row.name, lane);
        for (Phase phase : {Phase::forward, Phase::input_grad, Phase::weight_grad, Phase::step})
          fmt::print(" {} |", grouped(traffic.bytes(lane, phase)));
        fmt::print("\n");
      }
    }
  }
}

}  // namespace
}  // namespace tenon::test

int main(int argc, char** argv) try {
  if (argc != 2) throw std::runtime_error("traffic_page STRATEGY");
  tenon::test::print(argv[1]);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "traffic_page: %s\n", error.what());
  return 1;
}
