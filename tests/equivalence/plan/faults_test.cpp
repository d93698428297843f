// The tester is tested: a fault is planted into a sound program, and exactly one check must see it and name
// the instruction.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <set>

#include "planted.hpp"
#include "programs.hpp"

namespace tenon::test {

void PrintTo(const Setting& s, std::ostream* out) {
  *out << (s.exact ? "exact" : "fast") << " dp " << s.dp << (s.tree_order ? "" : " own tree");
}

namespace {

const Compiled& sound(const Setting& s) {
  static std::map<std::tuple<int, bool, bool>, Compiled> known;
  const auto key = std::tuple(s.dp, s.exact, s.tree_order);
  if (!known.contains(key)) known.emplace(key, compile_program(small_gpt2(), s));
  return known.at(key);
}

class Faults : public testing::TestWithParam<Setting>, protected Planted {
 protected:
  Faults() : Planted(sound(GetParam())) {}

  template <class Match>
  InstrId find(Match match) const {
    return find_instr(program_, match);
  }
  InstrId find_kind(const std::string& kind, int microbatch, const std::string& out = "") const {
    return find([&](const Instr& i) {
      return i.kind == kind && i.microbatch == microbatch && (out.empty() || i.out[0].name == out);
    });
  }
  // The transfer that reduces a bucket: by the plugin, or the exchange of its parts.
  InstrId find_reduction() const {
    return find([&](const Instr& i) { return i.lane != 0 && i.in[0].name.starts_with("grads."); });
  }
  void erase(InstrId id) { erase_instr(program_, id); }
  void insert_copy(InstrId id) { insert_instr(program_, id, program_.instrs[id]); }
  InstrId update() const { return find_kind("update", -1); }
  bool own_tree() const { return GetParam().exact && !GetParam().tree_order; }

  Program& program_ = programs_[0];
};

TEST_P(Faults, none_planted_none_found) {
  EXPECT_EQ(refusing(), "");
  const auto report = verify(programs_, *reference_);
  ASSERT_TRUE(report.ok()) << report.error().text();
  EXPECT_EQ(report->passed, verify(programs_, *reference_)->passed);
  EXPECT_EQ(report->passed.size(), 4u);
}

// -- V002, V003 -------------------------------------------------------------------------------------
TEST_P(Faults, a_transfer_on_the_compute_lane) {
  const InstrId id = find_reduction();
  program_.instrs[id].lane = 0;
  EXPECT_EQ(check_symmetric(programs_).error().code, "V002");
  EXPECT_NE(verify(programs_, *reference_).error().place.find(named(id)), std::string::npos);
}

TEST_P(Faults, a_transfer_over_an_axis_that_the_mesh_lacks) {
  program_.instrs[find_reduction()].axes = {7};
  EXPECT_EQ(verify(programs_, *reference_).error().cause,
            "runs over an axis twice, or over one that the mesh lacks");
}

TEST_P(Faults, a_transfer_that_writes_less_than_it_reads) {
  const InstrId id = find_reduction();
  program_.instrs[id].out[0].dims.change([](auto& dims) { --dims[0]; });
  EXPECT_EQ(check_symmetric(programs_).error().cause,
            "what it reads and what it writes do not fit each other");
  EXPECT_NE(verify(programs_, *reference_).error().place.find(named(id)), std::string::npos);
}

TEST_P(Faults, a_wait_for_a_later_instruction) {
  const InstrId id = find_kind("linear", 0);
  program_.instrs[id].waits.push_back(id + 1);
  expect("V003", "waits for instruction " + std::to_string(id + 1) + ", which comes no earlier", named(id));
}

class Transfers : public Faults {
 protected:
  Transfers() {
    for (int64_t rank = 0; rank < GetParam().dp; ++rank) lists_.push_back(transfers_of(program_, rank));
  }
  Error refused() const {
    const Status status = check_transfers(lists_);
    return status.ok() ? Error{} : status.error();
  }
  std::vector<std::vector<Transfer>> lists_;
};

TEST_P(Transfers, of_different_kinds) {
  lists_[1][0].kind = TransferKind::broadcast;
  EXPECT_EQ(refused().code, "V002");
  EXPECT_NE(refused().cause.find("rank 1 does broadcast"), std::string::npos) << refused().cause;
  EXPECT_NE(refused().cause.find("(instruction " + std::to_string(lists_[0][0].instr) + ")"),
            std::string::npos);
}

TEST_P(Transfers, of_different_bytes) {
  lists_[1][0].bytes += 8;
  EXPECT_EQ(refused().code, "V002");
}

TEST_P(Transfers, of_different_reductions_or_types) {
  lists_[1][0].reduction = Reduction::max;
  EXPECT_EQ(refused().code, "V002");
  lists_[1][0].reduction = Reduction::sum;
  lists_[1][0].dtype = Dtype::f16;
  EXPECT_EQ(refused().code, "V002");
}

// Two neighbours that are alike may be swapped without harm; these are not.
TEST_P(Transfers, swapped_on_one_rank) {
  auto& list = lists_[1];
  size_t k = 0;
  while (k + 2 < list.size() && list[k].bytes == list[k + 1].bytes) ++k;
  std::swap(list[k], list[k + 1]);
  for (Transfer& transfer : list) transfer.needs.clear();
  EXPECT_EQ(refused().code, "V002");
}

TEST_P(Transfers, that_one_rank_lacks_is_a_deadlock) {
  lists_[1].pop_back();
  EXPECT_EQ(refused().code, "V003");
  EXPECT_NE(refused().cause.find("but rank 1 has nothing left to do"), std::string::npos) << refused().cause;
}

TEST_P(Transfers, over_a_group_without_the_rank_itself) {
  lists_[1][0].members = {0};
  EXPECT_EQ(refused().code, "V002");
  EXPECT_NE(refused().cause.find("which is no group of its own"), std::string::npos) << refused().cause;
}

TEST_P(Transfers, over_a_rank_that_does_not_exist) {
  lists_[1][0].members.push_back(64);
  EXPECT_EQ(refused().code, "V002");
}

TEST_P(Transfers, over_a_smaller_group_than_the_peers_is_a_deadlock) {
  lists_[1].back().members = {1};
  EXPECT_EQ(refused().code, "V003");
  EXPECT_NE(refused().cause.find("deadlock: rank 0 waits in"), std::string::npos) << refused().cause;
}

// Each pair meets, but in another order on each rank: no two ever agree.
TEST(transfers, in_a_cycle_are_a_deadlock) {
  const auto pair = [](InstrId id, int32_t a, int32_t b) {
    return Transfer{id, TransferKind::all_reduce, {a, b}, -1, 8};
  };
  const std::vector<std::vector<Transfer>> cycle{
      {pair(0, 0, 1), pair(1, 0, 2)}, {pair(2, 1, 2), pair(0, 0, 1)}, {pair(1, 0, 2), pair(2, 1, 2)}};
  EXPECT_EQ(check_transfers(cycle).error().code, "V003");
  EXPECT_EQ(check_transfers(cycle).error().cause,
            "deadlock: rank 0 waits in all_reduce f32 8 bytes over {0,1} (instruction 0), but rank 1 is at "
            "all_reduce f32 8 bytes over {1,2} (instruction 2)");
}

// Each rank sends twice before it receives. What is sent is taken only where a receive is posted, so a rank
// that waits for its first before its second waits for ever.
TEST(transfers, whose_windows_wait_for_each_other_are_a_deadlock) {
  const auto one_way = [](TransferKind kind, int32_t root, uint32_t lane) {
    Transfer out{0, kind, {0, 1}, root, 8};
    out.lane = lane;
    return out;
  };
  const auto list = [&](int32_t me) {
    const Transfer send = one_way(TransferKind::send, me, 0), recv = one_way(TransferKind::recv, 1 - me, 1);
    return std::vector<Transfer>{send, send, recv, recv};
  };
  std::vector<std::vector<Transfer>> lists{list(0), list(1)};
  EXPECT_TRUE(check_transfers(lists).ok());
  lists[0][1].needs = {0};
  EXPECT_TRUE(check_transfers(lists).ok()) << "the other rank does not wait";
  lists[1][1].needs = {0};
  EXPECT_EQ(check_transfers(lists).error().code, "V003");
  EXPECT_EQ(
      check_transfers(lists).error().cause,
      "deadlock: rank 0 waits in send f32 8 bytes over {0,1} (instruction 0), but rank 1 is at send f32 8 "
      "bytes over {0,1} (instruction 0)");
}

// -- V004 -------------------------------------------------------------------------------------------
TEST_P(Faults, every_wait_edge_is_needed) {
  int edges = 0;
  for (InstrId id = 0; id < program_.instrs.size(); ++id) {
    const std::vector<InstrId> waits = program_.instrs[id].waits;
    for (InstrId wait : waits) {
      std::erase(program_.instrs[id].waits, wait);
      const Status race = check_races(program_), window = check_windows(program_);
      ASSERT_FALSE(race.ok() && window.ok()) << id << " no longer waits for " << wait;
      if (!race.ok()) {
        EXPECT_EQ(race.error().code, "V004");
        EXPECT_NE(race.error().cause.find("nothing orders the two"), std::string::npos);
      }
      program_.instrs[id].waits = waits;
      ++edges;
    }
  }
  EXPECT_GE(edges, 4);
}

TEST_P(Faults, more_in_flight_than_the_window) {
  program_.window.transfers = 1;
  expect("V008", "2 transfers with ", "program, instruction ");
}

TEST_P(Faults, more_bytes_in_flight_than_the_window) {
  program_.window.bytes = 1;
  expect("V008", "whose window is 3 with 1", "program, instruction ");
}

TEST_P(Faults, a_removed_wait) {
  const InstrId id = find([&](const Instr& i) { return i.lane == 0 && !i.waits.empty(); });
  program_.instrs[id].waits.clear();
  expect("V004", "nothing orders the two", named(id));
}

TEST_P(Faults, a_buffer_moved_onto_a_live_one) {
  // The first layernorm's output is read by q, k and v; q's output is written in between.
  const InstrId q = find_kind("linear", 0);
  const auto behind = std::find_if(program_.instrs.begin() + q + 1, program_.instrs.end(),
                                   [](const Instr& instr) { return instr.kind == "linear"; });
  const auto k = static_cast<InstrId>(behind - program_.instrs.begin());
  ASSERT_EQ(program_.instrs[k].in[0].buffer, program_.instrs[q].in[0].buffer);
  const Buffer& normed = program_.buffers[program_.instrs[q].in[0].buffer];
  program_.buffers[program_.instrs[k].out[0].buffer].offset = normed.offset;
  EXPECT_EQ(refusing(), "V004");
}

TEST_P(Faults, a_buffer_moved_onto_one_that_is_read_later) {
  const InstrId q = find_kind("linear", 0);
  const InstrId clobber = q + 1;  // bias_add works in place: give it another's memory instead
  const BufferId saved = program_.instrs[q].in[0].buffer;
  Instr& instr = program_.instrs[clobber];
  instr.inplace = -1;
  instr.out[0].buffer = static_cast<BufferId>(program_.buffers.size());
  program_.buffers.push_back({"planted", Space::arena, instr.out[0].bytes(), program_.buffers[saved].offset});
  for (InstrId id = clobber + 1; id < program_.instrs.size(); ++id) {
    for (Operand& in : program_.instrs[id].in) {
      if (in.name == instr.out[0].name && program_.instrs[id].microbatch == 0)
        in.buffer = instr.out[0].buffer;
    }
  }
  EXPECT_EQ(check_uses(program_).error().cause, "'" + program_.instrs[q].in[0].name +
                                                    "' was written over by instruction " +
                                                    std::to_string(clobber) + " (bias_add)");
  EXPECT_EQ(refusing(), "V004");
}

TEST_P(Faults, an_output_that_overlaps_its_input) {
  const InstrId id = find_kind("gelu", 0);
  program_.instrs[id].out[0] = program_.instrs[id].in[0];
  EXPECT_NE(check_races(program_).error().cause.find("of the same instruction"), std::string::npos);
}

// -- V005 -------------------------------------------------------------------------------------------
TEST_P(Faults, an_operand_beyond_its_buffer) {
  const InstrId id = find_kind("layernorm", 0);
  program_.instrs[id].out[0].offset += 64;
  expect("V005", "reaches beyond its memory", named(id));
}

TEST_P(Faults, a_buffer_beyond_its_space) {
  const InstrId id = find_kind("layernorm", 0);
  program_.buffers[program_.instrs[id].out[0].buffer].offset = program_.space_bytes[3];
  expect("V005", "reaches beyond its memory", named(id));
}

TEST_P(Faults, a_buffer_that_is_not_aligned) {
  const InstrId id = find_kind("update", -1);
  Buffer& buffer = program_.buffers[program_.instrs[id].out[0].buffer];
  buffer.offset += 8;
  buffer.bytes -= 8;
  program_.instrs[id].out[0].dims = {1};
  EXPECT_EQ(check_form(programs_).error().code, "V005");
}

TEST_P(Faults, a_peak_other_than_planned) {
  program_.space_bytes[static_cast<size_t>(Space::arena)] += 64;
  expect("V005", "arena peak " + std::to_string(program_.space_bytes[3] - 64) + " bytes, planned",
         "train program");
}

TEST_P(Faults, two_buckets_of_parameters_in_one_place) {
  const BufferId first = program_.params[0].operand.buffer;
  const auto other = std::ranges::find_if(program_.params,
                                          [first](const TensorInfo& p) { return p.operand.buffer != first; });
  program_.buffers[other->operand.buffer].offset = program_.buffers[first].offset;
  expect("V005", "'params.", "train program");
  EXPECT_TRUE(check_memory(program_).error().cause.ends_with("' share bytes"));
}

TEST_P(Faults, an_operand_without_memory) {
  const InstrId id = find_kind("layernorm", 0);
  program_.instrs[id].in[0].buffer = kNone;
  expect("V005", "reaches beyond its memory", named(id));
}

// -- V006 -------------------------------------------------------------------------------------------
TEST_P(Faults, a_read_before_its_write) {
  const InstrId id = find_kind("layernorm", 0);
  std::swap(program_.instrs[id], program_.instrs[id + 1]);
  replan();
  expect("V006", "is read before it is written", named(id));
}

TEST_P(Faults, an_accumulation_onto_nothing) {
  const InstrId id = find_kind("linear_wgrad", 0);
  program_.instrs[id].accumulate = true;
  EXPECT_EQ(check_uses(program_).error().code, "V006");
  EXPECT_NE(verify(programs_, *reference_).error().place.find(named(id)), std::string::npos);
}

// What an earlier buffer left in the same bytes is not a value of this one.
TEST_P(Faults, a_read_of_what_another_buffer_left) {
  const InstrId id = find_kind("gelu", 0);
  erase(id);
  replan();
  EXPECT_EQ(check_uses(program_).error().code, "V006");
  EXPECT_EQ(refusing(), "V006");
}

// -- V007 -------------------------------------------------------------------------------------------
TEST_P(Faults, a_bucket_that_is_not_reduced) {
  if (own_tree()) GTEST_SKIP() << "the reduction is several instructions: see below";
  erase(find_reduction());
  replan();
  expect("V007", "is not summed over dp", "(");
}

TEST_P(Faults, a_bucket_that_is_reduced_twice) {
  if (own_tree()) GTEST_SKIP() << "the reduction is several instructions: see below";
  insert_copy(find_reduction());
  replan();
  expect("V007", "is summed over dp, on which no rank has an addend of it", "(all_reduce");
}

TEST_P(Faults, a_bucket_reduced_by_its_maximum) {
  if (own_tree()) GTEST_SKIP() << "no reduction by the plugin";
  program_.instrs[find_reduction()].reduction = Reduction::max;
  expect("V007", "reduces by another operation than the sum", "(");
}

TEST_P(Faults, every_addition_of_the_own_tree_is_needed) {
  if (!own_tree()) GTEST_SKIP() << "the plugin reduces";
  const Program sound = program_;
  int planted = 0;
  for (InstrId id = find_reduction(); id < sound.instrs.size(); ++id) {
    if (sound.instrs[id].kind != "add" || sound.instrs[id].phase != Phase::step) continue;
    program_ = sound;
    erase(id);
    replan();
    EXPECT_EQ(refusing(), "V007") << id;
    program_ = sound;
    insert_copy(id);
    replan();
    EXPECT_EQ(refusing(), "V007") << id;
    ++planted;
  }
  EXPECT_GE(planted, GetParam().dp - 1);
}

TEST_P(Faults, an_exchange_without_its_gather) {
  if (!own_tree()) GTEST_SKIP() << "the plugin reduces";
  erase(find([](const Instr& i) { return i.kind == "all_gather"; }));
  replan();
  EXPECT_EQ(refusing(), "V007");
}

TEST_P(Faults, any_lost_contribution) {
  const Program sound = program_;
  int planted = 0;
  for (InstrId id = 0; id < sound.instrs.size(); ++id) {
    if (sound.instrs[id].phase != Phase::weight_grad) continue;
    program_ = sound;
    erase(id);
    replan();
    // What it would have written is then unread memory, or was added into by the next one.
    const std::string codes = refusing();
    EXPECT_TRUE(codes == "V007" || codes == "V006") << id << " " << sound.instrs[id].kind << ": " << codes;
    ++planted;
  }
  EXPECT_GE(planted, 20);
}

TEST_P(Faults, the_last_microbatch_lost) {
  const int last = static_cast<int>(program_.microbatches) - 1;
  if (last == 0) GTEST_SKIP() << "one microbatch";
  const InstrId id = find_kind("embedding_wgrad", last, "wpe.weight.grad");
  erase(id);
  replan();
  if (GetParam().exact)
    EXPECT_NE(refusing().find("V007"), std::string::npos);
  else
    expect("V007", "it lacks 'embedding_wgrad' of microbatch " + std::to_string(last), "(norms");
}

TEST_P(Faults, a_contribution_that_counts_twice) {
  const InstrId id = find_kind("linear_wgrad", static_cast<int>(program_.microbatches) - 1);
  insert_copy(id);
  program_.instrs[id + 1].accumulate = true;
  replan();
  expect("V007", "'wte.weight.grad' is not what the model makes", "(norms");
}

TEST_P(Faults, a_dropped_accumulate_flag) {
  const InstrId id = find([](const Instr& i) { return i.accumulate; });
  program_.instrs[id].accumulate = false;
  expect("V007", "wte.weight.grad", "(");
}

TEST_P(Faults, a_parameter_in_two_buckets) {
  FlatLayout &first = program_.layouts[0], &second = program_.layouts[1];
  second.leaves[0].param = first.leaves[0].param;
  EXPECT_EQ(refusing(), "V007");
}

TEST_P(Faults, the_update_run_twice) {
  insert_copy(update());
  replan();
  expect("V007", "' is not updated where it is", "(update");
}

TEST_P(Faults, a_bucket_not_updated) {
  const FlatLayout& layout = program_.layouts[static_cast<size_t>(program_.instrs[update()].layout)];
  std::set<uint32_t> leaves;
  for (const FlatLayout::Leaf& leaf : layout.leaves) leaves.insert(leaf.param);
  const std::string name = program_.params[*leaves.begin()].name;
  erase(update());
  replan();
  EXPECT_EQ(check_meaning(programs_, *reference_).error().cause,
            "'" + name + "' is not brought up to date on every rank that holds it");
}

TEST_P(Faults, gradients_of_two_parameters_exchanged) {
  for (FlatLayout& layout : program_.layouts) {
    const auto alike = std::ranges::adjacent_find(layout.leaves, {}, &FlatLayout::Leaf::count);
    if (alike == layout.leaves.end()) continue;
    std::swap(alike->param, std::next(alike)->param);
    return expect("V007", "' is not where its bucket says", program_.params[std::next(alike)->param].name);
  }
  FAIL() << "no two parameters of one size in a bucket";
}

TEST_P(Faults, an_update_of_a_copy) {
  const InstrId id = update();
  Instr& instr = program_.instrs[id];
  std::swap(instr.out[0].buffer, instr.out[1].buffer);
  expect("V007", "is not updated where it is", named(id));
}

TEST_P(Faults, a_kernel_that_writes_to_a_parameter) {
  Operand& out = program_.instrs[find_kind("bias_wgrad", 0, "h.1.mlp.c_proj.bias.grad")].out[0];
  const auto param = std::find_if(program_.params.begin(), program_.params.end(),
                                  [](const TensorInfo& p) { return p.name == "h.1.mlp.c_proj.bias"; });
  out.buffer = param->operand.buffer;
  out.offset = param->operand.offset;
  replan();
  EXPECT_EQ(check_meaning(programs_, *reference_).error().code, "V007");
  EXPECT_NE(check_meaning(programs_, *reference_).error().cause.find("which only an update may"),
            std::string::npos);
}

TEST_P(Faults, a_count_that_is_not_summed_over_the_ranks) {
  if (own_tree()) GTEST_SKIP() << "covered by every_addition";
  erase(find([](const Instr& i) { return i.lane != 0 && i.in[0].dtype == Dtype::i64; }));
  replan();
  const InstrId clip = find_kind("clip_scale", -1);
  expect("V007", "is not summed over dp", named(clip));
}

TEST_P(Faults, a_count_without_a_microbatch) {
  if (program_.microbatches == 1) GTEST_SKIP() << "one microbatch";
  erase(find([](const Instr& i) { return i.kind == "add" && i.in[0].dtype == Dtype::i64; }));
  replan();
  EXPECT_EQ(refusing(), "V007");
}

// Every router's auxiliary loss is once in the loss.
class AuxiliaryLoss : public testing::Test {
 protected:
  static const Compiled& sound() {
    static const Compiled compiled = [] {
      TinyModel tiny;
      tiny.vocab = 32;
      return compile_program(tiny_recipe(moe_model(tiny), "none", tiny.context),
                             {.dp = 2, .microbatches = 2});
    }();
    return compiled;
  }
  static Program program() { return sound().programs[0]; }
  static size_t nth_addition(const Program& program, int n) {
    for (size_t id = 0; id < program.instrs.size(); ++id) {
      const Instr& instr = program.instrs[id];
      if (instr.kind == "add" && instr.in[1].name.ends_with(".aux") && n-- == 0) return id;
    }
    ADD_FAILURE() << "no such addition";
    return 0;
  }
  static std::string refusal(Program program) {
    schedule_waits(program);
    plan_memory(program);
    const Status status = check_meaning({program}, *sound().reference);
    return status.ok() ? "" : status.error().cause;
  }
};

TEST_F(AuxiliaryLoss, is_complete) { EXPECT_EQ(refusal(program()), ""); }

TEST_F(AuxiliaryLoss, that_is_left_out_is_found) {
  Program faulty = program();
  Instr& addition = faulty.instrs[nth_addition(faulty, 1)];
  addition.kind = "slice";  // the loss goes on without it
  addition.in.pop_back();
  EXPECT_NE(refusal(faulty), "");
}

TEST_F(AuxiliaryLoss, that_is_added_twice_is_found) {
  Program faulty = program();
  const size_t first = nth_addition(faulty, 0), second = nth_addition(faulty, 1);
  faulty.instrs[second].in[1] = faulty.instrs[first].in[1];
  EXPECT_NE(refusal(faulty), "");
}

TEST_P(Faults, a_bucket_without_a_parameter) {
  FlatLayout& layout = program_.layouts.back();
  const std::string name = program_.params[layout.leaves.back().param].name;
  layout.leaves.pop_back();
  expect("V007", "parameter '" + name + "' is in 0 buckets", name);
}

TEST_P(Faults, a_norm_without_a_bucket) {
  erase(find_kind("norms", -1));
  replan();
  EXPECT_EQ(refusing(), "V006");
  EXPECT_EQ(check_meaning(programs_, *reference_).error().code, "V007");
}

TEST_P(Faults, a_norm_taken_before_the_reduction) {
  if (own_tree()) GTEST_SKIP() << "covered by every_addition";
  const InstrId reduction = find_reduction();
  const Instr moved = program_.instrs[reduction];
  const InstrId last = find_kind("clip_scale", -1);
  program_.instrs.insert(program_.instrs.begin() + last, moved);
  program_.instrs.erase(program_.instrs.begin() + reduction);
  replan();
  expect("V007", "is not summed over dp", "(norms");
}

const auto kSettings =
    testing::Values(Setting{2, false, 2}, Setting{4, false, 2}, Setting{2, true}, Setting{4, true},
                    Setting{2, true, 1, false}, Setting{4, true, 1, false}, Setting{8, true, 1, false});
INSTANTIATE_TEST_SUITE_P(programs, Faults, kSettings);
INSTANTIATE_TEST_SUITE_P(programs, Transfers, kSettings);

}  // namespace
}  // namespace tenon::test
