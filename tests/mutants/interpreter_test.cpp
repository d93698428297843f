// The interpreter against the executor: each recipe on virtual ranks, and its model on one. What it says of a
// program that is wrong is tried too, for it judges mutants.
#include <cmath>
#include <mutex>

#include "recipes.h"
#include "samples.h"
#include "subject.h"

namespace tenon::mutants {
namespace {

constexpr double kTolerance = 1e-10, kSmall = 1e-6;

struct SessionRun {
  test::RunRecord record;
  EvalResult eval;
  std::map<int64_t, std::vector<double>> logits;  // of the last of so many tokens
};

SessionRun run_session(const Json& document, int ranks, std::shared_ptr<const Programs> programs) {
  SessionRun out;
  std::mutex mutex;
  const auto record = test::run_virtual(
      document, {.ranks = ranks,
                 .steps = kSteps,
                 .after = [&](Session& session) -> Status {
                   TENON_TRY(const EvalResult eval, session.evaluate());
                   std::map<int64_t, std::vector<double>> logits;
                   for (int64_t n : {int64_t{4}, kContext}) {  // whole routing groups
                     const auto& all = sample(0).tokens;
                     TENON_TRY(logits[n], session.logits({all.begin(), all.begin() + n}));
                   }
                   const std::lock_guard lock(mutex);
                   out.eval = eval;
                   out.logits = std::move(logits);
                   return {};
                 },
                 .change_plugins = [](PluginSet& plugins) { plugins.data.table = sample_table(); },
                 .programs = std::move(programs)});
  if (!record.ok()) throw std::runtime_error(record.error().text());
  out.record = *record;
  return out;
}

// What the interpreter's run had under a name; of a tensor, whatever its shape.
const std::vector<double>& of(const Record& record, const std::string& name) {
  for (const Record::Entry& entry : record.entries()) {
    if (entry.name == name || entry.name.starts_with(name + " f64[")) return entry.values;
  }
  throw std::runtime_error("the interpreter has no '" + name + "'");
}

// In exact mode to the bit.
void expect_same(const Record& record, const SessionRun& session, bool exact) {
  const double tolerance = exact ? 0 : kTolerance;
  const auto expect_close = [&](const std::string& name, const std::vector<double>& values) {
    EXPECT_LE(distance(values, of(record, name), kSmall), tolerance) << name;
  };
  for (size_t s = 0; s < kSteps; ++s) {
    const std::string step = "step " + std::to_string(s + 1) + " ";
    const StepResult& result = session.record.steps[s].result;
    const double count = of(record, step + "count on rank 0")[0];
    EXPECT_EQ(count, static_cast<double>(result.tokens));
    EXPECT_LE(std::abs(of(record, step + "loss on rank 0")[0] / count - result.loss), tolerance);
    expect_close(step + "norm on rank 0", {result.grad_norm});
    EXPECT_GT(result.grad_norm, 0.1) << "nothing is clipped";
    for (const auto& [name, bytes] : session.record.steps[s].gradients)
      expect_close(step + "gradient of " + name, test::as_doubles(bytes, Dtype::f64));
  }
  for (const auto& [name, bytes] : session.record.tensors)
    expect_close("final " + name, test::as_doubles(bytes, Dtype::f64));
  const std::string eval = "step " + std::to_string(kSteps + 1) + " ";
  const double count = of(record, eval + "count on rank 0")[0];
  EXPECT_EQ(count, static_cast<double>(session.eval.tokens));
  EXPECT_LE(std::abs(of(record, eval + "loss on rank 0")[0] / count - session.eval.loss), tolerance);
}

void expect_same_logits(const Record& record, const SessionRun& session) {
  for (const auto& [n, last] : session.logits) {
    const auto first = of(record, "logits on rank 0").begin() + (n - 1) * kVocabulary;
    EXPECT_LE(distance(last, std::vector<double>(first, first + kVocabulary), kSmall), kTolerance) << n;
  }
}

class Interpreted : public testing::TestWithParam<NamedRecipe> {
 protected:
  Subject subject_{GetParam().name, GetParam().document};
};

TEST_P(Interpreted, equals_the_executor_on_virtual_ranks) {
  const auto session =
      run_session(subject_.document(), static_cast<int>(subject_.mesh().world()), subject_.programs());
  EXPECT_EQ(session.record.disagreements, std::vector<std::string>{});
  expect_same(subject_.expected(Part::train), session, subject_.exact());
  expect_same_logits(subject_.expected(Part::logits), session);
}

TEST_P(Interpreted, equals_one_rank) {
  expect_same(subject_.expected(Part::train), run_session(alone(subject_.document()), 1, nullptr),
              subject_.exact());
}

TEST_P(Interpreted, does_not_depend_on_when_transfers_are_complete) {
  for (Part part : kParts) {
    for (Completion completion : kCompletions) {
      SCOPED_TRACE(std::string(name_of(part)) + ", transfers complete " + name_of(completion));
      Record same(subject_.expected(part), true);
      EXPECT_NO_THROW(subject_.run(part, subject_.compiled(part).programs, completion, 5, same));
    }
  }
}

TEST_P(Interpreted, everything_is_a_number) {
  for (Part part : kParts) {
    for (const Record::Entry& entry : subject_.expected(part).entries()) {
      for (double value : entry.values) ASSERT_TRUE(std::isfinite(value)) << entry.name;
    }
  }
}

// A run without waits is wrong in one of the three ways at least.
TEST_P(Interpreted, sees_that_waits_are_missing) {
  std::vector<Program> programs = subject_.compiled(Part::train).programs;
  for (Program& program : programs) {
    for (Instr& instr : program.instrs) instr.waits.clear();
  }
  int wrong = 0;
  for (Completion completion : kCompletions) {
    Record same(subject_.expected(Part::train), false);
    try {
      subject_.run(Part::train, programs, completion, 5, same);
    } catch (const std::runtime_error&) {
      ++wrong;
    }
  }
  EXPECT_GT(wrong, 0);
}

std::string name_of_recipe(const testing::TestParamInfo<NamedRecipe>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(recipes, Interpreted, testing::ValuesIn(recipes()), name_of_recipe);

// A message of what is wrong with the first program's transfers of a kind once `change` is made.
std::string fault_of(const char* recipe, const char* kind,
                     const std::function<void(Program&, InstrId)>& change) {
  const auto named = std::ranges::find(recipes(), recipe, &NamedRecipe::name);
  Subject subject(named->name, named->document);
  std::vector<Program> programs = subject.compiled(Part::train).programs;
  const auto found = std::ranges::find(programs[0].instrs, kind, &Instr::kind);
  change(programs[0], static_cast<InstrId>(found - programs[0].instrs.begin()));
  for (Completion completion : kCompletions) {
    try {
      Record any;
      subject.run(Part::train, programs, completion, 0, any);
    } catch (const Fault& fault) {
      return fault.what();
    }
  }
  return "";
}

TEST(Faults, a_send_that_never_starts_leaves_its_receiver_stuck) {
  EXPECT_EQ(fault_of("pp_1f1b", "send",
                     [](Program& program, InstrId id) {
                       program.instrs[id].kind = "zeros";
                       program.instrs[id].lane = 0;
                       program.instrs[id].out = program.instrs[id].in;
                       program.instrs[id].in.clear();
                     }),
            "the ranks are stuck");
}

TEST(Faults, members_that_send_different_sizes) {
  EXPECT_EQ(
      fault_of("pp_1f1b", "send", [](Program& program, InstrId id) { program.instrs[id].in[0].dims = {1}; }),
      "the members of a transfer do not agree");
}

TEST(Faults, an_operand_beyond_the_memory) {
  EXPECT_EQ(fault_of("dp", "all_reduce",
                     [](Program& program, InstrId id) { program.instrs[id].in[0].offset = 1u << 20; }),
            "an operand reaches beyond the memory");
}

// -- transfers, by hand -----------------------------------------------------------------------------

// What three members have of a transfer behind it; each brings {10 m + 0, 10 m + 1, ...} for its number m.
std::vector<std::vector<double>> performed(TransferKind kind, const std::vector<uint64_t>& counts,
                                           size_t elements, int32_t peer = -1,
                                           Reduction reduction = Reduction::sum) {
  constexpr size_t kMembers = 3;
  std::vector<std::vector<double>> src(kMembers), dst(kMembers, std::vector<double>(9, -1));
  std::vector<Post> posts(kMembers);
  std::vector<const Post*> all;
  for (size_t m = 0; m < kMembers; ++m) {
    for (size_t i = 0; i < 9; ++i) src[m].push_back(static_cast<double>(10 * m + i));
    posts[m].kind = kind;
    posts[m].member = m;
    posts[m].src = reinterpret_cast<const char*>(src[m].data());
    posts[m].dst = reinterpret_cast<char*>(dst[m].data());
    posts[m].count = elements;
    posts[m].counts = counts;
    posts[m].reduction = reduction;
    posts[m].peer = peer;
    all.push_back(&posts[m]);
  }
  perform(all);
  for (auto& values : dst) std::erase(values, -1.0);
  return dst;
}

using Members = std::vector<std::vector<double>>;

TEST(Transfers, all_reduce) {
  EXPECT_EQ(performed(TransferKind::all_reduce, {}, 2), (Members{{30, 33}, {30, 33}, {30, 33}}));
  EXPECT_EQ(performed(TransferKind::all_reduce, {}, 2, -1, Reduction::max),
            (Members{{20, 21}, {20, 21}, {20, 21}}));
}

TEST(Transfers, reduce_scatter_in_uneven_parts) {
  EXPECT_EQ(performed(TransferKind::reduce_scatter, {2, 0, 1}, 3), (Members{{30, 33}, {}, {36}}));
}

TEST(Transfers, all_gather_of_uneven_parts) {
  EXPECT_EQ(performed(TransferKind::all_gather, {1, 0, 2}, 3),
            (Members{{0, 20, 21}, {0, 20, 21}, {0, 20, 21}}));
}

TEST(Transfers, broadcast) {
  EXPECT_EQ(performed(TransferKind::broadcast, {}, 1, 1), (Members{{10}, {10}, {10}}));
}

TEST(Transfers, all_to_all) {
  EXPECT_EQ(performed(TransferKind::all_to_all, {1, 1, 1, 1, 1, 1}, 3),
            (Members{{0, 10, 20}, {1, 11, 21}, {2, 12, 22}}));
}

TEST(Transfers, permute) {
  EXPECT_EQ(performed(TransferKind::permute, {}, 1, 1), (Members{{20}, {0}, {10}}));
  EXPECT_EQ(performed(TransferKind::permute, {}, 1, -1), (Members{{10}, {20}, {0}}));
}

}  // namespace
}  // namespace tenon::mutants
