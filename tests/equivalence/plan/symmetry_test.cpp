// The proof by symmetry against every rank run, on worlds up to 512: both accept sound programs, and what the
// one refuses of faulty ones the other does too.
#include <random>

#include "planted.hpp"
#include "strategy_programs.hpp"

namespace tenon::test {

namespace {

Json wide_recipe(const Combination& c) {
  Json recipe = recipe_of(c, "none", false);
  recipe["batch"] = 16 * c.microbatches;
  return recipe;
}

class Symmetry : public testing::TestWithParam<Combination>, protected Planted {
 protected:
  Symmetry() : Planted(compile_document(wide_recipe(GetParam()), world_of(GetParam()))) {}

  static std::string code_of(const Status& status) { return status.ok() ? "" : status.error().code; }
  // The verdict of both, which must be one.
  std::string verdict(const std::string& what) const {
    const std::string symmetric = code_of(check_symmetric(programs_)),
                      all = code_of(check_every_rank(programs_));
    EXPECT_EQ(symmetric, all) << what;
    return symmetric;
  }
  std::vector<InstrId> crossing(const Program& program) const {
    std::vector<InstrId> out;
    for (InstrId id = 0; id < program.instrs.size(); ++id) {
      const Instr& instr = program.instrs[id];
      if (instr.lane != 0 && std::ranges::count(instr.axes, program.pipeline_axis) > 0) out.push_back(id);
    }
    return out;
  }
};

TEST_P(Symmetry, of_sound_programs_is_what_every_rank_shows) { EXPECT_EQ(verdict("sound"), ""); }

// Faults that one class makes and the others do not: within a class all ranks err alike.
TEST_P(Symmetry, of_faulty_programs_is_what_every_rank_shows) {
  const std::vector<Program> sound = programs_;
  if (sound.size() == 1) GTEST_SKIP() << "one class: all ranks run one list";
  std::mt19937_64 random(17);
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  std::map<std::string, int> verdicts;
  constexpr int kFaults = 24;
  for (int i = 0; i < kFaults; ++i) {
    programs_ = sound;
    Program& program = programs_[below(programs_.size())];
    const std::vector<InstrId> ids = crossing(program);
    const InstrId a = ids[below(ids.size())], b = ids[below(ids.size())];
    std::string what;
    switch (i % 4) {
      case 0:
        what = "transfers swapped";
        std::swap(program.instrs[a], program.instrs[b]);
        for (Instr& instr : program.instrs) instr.waits.clear();
        break;
      case 1:
        what = "a transfer left out";
        erase_instr(program, a);
        break;
      case 2: {
        what = "a transfer of fewer bytes";
        Instr& instr = program.instrs[a];
        for (auto* operands : {&instr.in, &instr.out}) {
          for (Operand& operand : *operands) operand.dims = {1};
        }
        break;
      }
      default:
        what = "a transfer done twice";
        insert_instr(program, a, program.instrs[a]);
        break;
    }
    ++verdicts[verdict(what + ", instruction " + std::to_string(a) + " and " + std::to_string(b) +
                       " of class " + std::to_string(program.class_index))];
  }
  EXPECT_GE(verdicts["V002"] + verdicts["V003"], kFaults * 3 / 4);
}

const Combination kWorlds[] = {
    {"dp8_zero3", "gpt2", {{"dp", 8}}, "data zero3", "", 2},
    {"dp16_tp4", "llama", {{"dp", 16}, {"tp", 4}}, "data sequence zero1", "", 2},
    {"pp3", "gpt2", {{"pp", 3}}, "pipeline", "1f1b", 3},
    {"pp2_dp4_cp2_tp2",
     "llama",
     {{"pp", 2}, {"dp", 4}, {"cp", 2}, {"tp", 2}},
     "pipeline data ring sequence zero2",
     "1f1b",
     2},
    {"dp8_pp4_tp4", "gpt2", {{"dp", 8}, {"pp", 4}, {"tp", 4}}, "pipeline data tensor zero3", "1f1b", 4, 4},
    {"pp4_dp8_zb_v", "gpt2 untied", {{"pp", 4}, {"dp", 8}}, "pipeline2 data zero2", "zb-v", 8, 8},
    {"tp4_dp16_pp8",
     "gpt2",
     {{"tp", 4}, {"dp", 16}, {"pp", 8}},
     "pipeline data sequence zero1",
     "1f1b",
     8,
     8},
};

INSTANTIATE_TEST_SUITE_P(worlds, Symmetry, testing::ValuesIn(kWorlds),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tenon::test
