// The tester is tested, part two: faults as a strategy or its emission might make them, planted into sound
// programs of pipelines, ZeRO, tensor and expert parallelism. Each is refused by the check that should, with
// its place.
#include "planted.hpp"
#include "strategy_programs.hpp"

namespace tenon::test {
namespace {

const Combination kPipeline{"pp2_dp2", "gpt2", {{"pp", 2}, {"dp", 2}}, "pipeline data", "1f1b", 4};
const Combination kZero1{"zero1", "gpt2", {{"dp", 2}}, "data zero1"};
const Combination kZero2{"zero2", "gpt2", {{"dp", 4}}, "data zero2", "", 2};
const Combination kLamb{"lamb", "gpt2", {{"dp", 2}}, "data zero2", "", 2, 3, "lamb"};
const Combination kZero3{"zero3", "gpt2", {{"dp", 2}}, "data zero3", "", 2};
const Combination kHierarchical{"hierarchical",     "gpt2", {{"dp_out", 2}, {"dp_in", 2}},
                                "data zero2:dp_in", "",     2};
const Combination kNearGathers{"near_gathers",        "gpt2", {{"dp_out", 2}, {"dp_in", 2}},
                               "data zero3:dp/dp_in", "",     2};
const Combination kTensor{"dp2_tp2", "gpt2", {{"dp", 2}, {"tp", 2}}, "data sequence", "", 2};
const Combination kSharedHeads{"tp4_groups2", "llama", {{"tp", 4}}, "tensor", "", 2, 3, "adamw", 2};
const Combination kRing{"cp2", "gpt2", {{"cp", 2}}, "ring"};
const Combination kExperts{"experts", "moe", {{"dp", 2}}, "data expert", "", 2};

bool starts(const Operand& operand, const char* prefix) { return operand.name.starts_with(prefix); }

class Faulty : public testing::Test, protected Planted {
 protected:
  explicit Faulty(const Combination& c) : Planted(compiled_of(c)) {}

  Program& program(size_t klass = 0) { return programs_[klass]; }
  template <class Match>
  InstrId find(size_t klass, Match match) const {
    return find_instr(programs_[klass], match);
  }
  template <class Match>
  InstrId find_last(size_t klass, Match match) const {
    InstrId found = kNone;
    for (InstrId id = 0; id < programs_[klass].instrs.size(); ++id) {
      if (match(programs_[klass].instrs[id])) found = id;
    }
    EXPECT_NE(found, kNone) << "no such instruction";
    return found;
  }
  Instr& at(size_t klass, InstrId id) { return programs_[klass].instrs[id]; }
  // Moves an instruction in front of an earlier one, or behind a later one.
  void move(size_t klass, InstrId from, InstrId to) {
    const Instr moved = at(klass, from);
    erase_instr(programs_[klass], from);
    insert_instr(programs_[klass], to, moved);
  }
  InstrId find_norms(size_t klass, int32_t layout) const {
    return find(klass, [layout](const Instr& i) { return i.kind == "norms" && i.layout == layout; });
  }
  AxisId axis(const std::string& name) const { return programs_[0].mesh.find(name).value(); }
  uint32_t lane(size_t klass, const std::string& name) const {
    const auto& lanes = programs_[klass].lanes;
    return static_cast<uint32_t>(std::ranges::find(lanes, name) - lanes.begin());
  }
};

// -- pipelines --------------------------------------------------------------------------------------
class PipelineFault : public Faulty {
 protected:
  PipelineFault() : Faulty(kPipeline) {}

  static bool sends(const Instr& i, int microbatch) { return i.kind == "send" && i.microbatch == microbatch; }
  static bool over_stages(const Instr& i) {
    return i.kind == "all_reduce" && i.axes == std::vector<AxisId>{0};
  }
  static bool joins_tied(const Instr& i) { return i.kind == "add" && i.in[1].name.ends_with(".other"); }
};

TEST_F(PipelineFault, none_planted_none_found) {
  EXPECT_EQ(refusing(), "");
  replan();
  EXPECT_EQ(refusing(), "");
  EXPECT_EQ(programs_.size(), 2u);
}

TEST_F(PipelineFault, a_lost_microbatch) {
  const InstrId id = find(1, [](const Instr& i) { return i.kind == "linear_wgrad" && i.microbatch == 3; });
  const std::string name = at(1, id).out[0].name;
  erase_instr(program(1), id);
  replan();
  expect("V007", "'" + name + "' is not what the model makes: it lacks 'linear_wgrad' of microbatch 3",
         "(norms");
}

TEST_F(PipelineFault, a_swapped_pair_of_sends) {
  const InstrId first = find(0, [](const Instr&i) { return sends(i, 0); }),
                second = find(0, [](const Instr&i) { return sends(i, 1); });
  move(0, first, second);
  replan();
  EXPECT_EQ(refusing(), "V002");
  const Error error = check_symmetric(programs_).error();
  EXPECT_NE(error.cause.find("rank 0 does send of '"), std::string::npos) << error.cause;
  EXPECT_NE(error.cause.find(", microbatch 1, "), std::string::npos) << error.cause;
  EXPECT_NE(error.cause.find(", microbatch 0, "), std::string::npos) << error.cause;
}

TEST_F(PipelineFault, a_send_that_waits_for_what_comes_of_it) {
  const InstrId send = find(0, [](const Instr&i) { return i.kind == "send"; }),
                recv = find(0, [](const Instr&i) { return i.kind == "recv"; });
  ASSERT_LT(send, recv);
  move(0, recv, send);
  replan();
  ASSERT_TRUE(check_symmetric(programs_).ok()) << "it is posted early, no more";
  at(0, send + 1).waits.push_back(send);
  expect("V003", "deadlock: rank 0 waits in recv of '", "");
  EXPECT_NE(check_symmetric(programs_).error().cause.find("but rank 1 waits in recv of '"),
            std::string::npos);
}

TEST_F(PipelineFault, a_send_that_is_left_out) {
  erase_instr(program(0), find(0, [](const Instr& i) { return sends(i, 3); }));
  replan();
  EXPECT_EQ(check_symmetric(programs_).error().code, "V003");
  EXPECT_EQ(check_every_rank(programs_).error().code, "V003");
}

TEST_F(PipelineFault, a_send_to_a_stage_that_is_not_there) {
  const InstrId id = find(0, [](const Instr& i) { return i.kind == "send"; });
  at(0, id).peer = 2;
  program().lanes[at(0, id).lane] = "send>2";
  EXPECT_EQ(check_symmetric(programs_).error().code, "V002");
  EXPECT_NE(check_symmetric(programs_).error().place.find(named(id)), std::string::npos);
}

TEST_F(PipelineFault, a_transfer_across_stages_and_another_axis) {
  for (size_t klass : {0u, 1u}) {
    Instr& sum = at(klass, find(klass, over_stages));
    sum.axes = {0, 1};
  }
  EXPECT_EQ(check_symmetric(programs_).error().code, "V002");
}

TEST_F(PipelineFault, another_microbatchs_activation) {
  const auto gelu = [](int microbatch) {
    return [microbatch](const Instr& i) { return i.kind == "gelu_dgrad" && i.microbatch == microbatch; };
  };
  const InstrId first = find(0, gelu(0)), second = find(0, gelu(1));
  at(0, second).in[1] = at(0, first).in[1];
  replan();
  expect("V006", "was written for microbatch 0 by instruction", named(second));
}

// What the backward of a microbatch in flight needs is given to the next one.
TEST_F(PipelineFault, a_buffer_reused_too_early) {
  const auto gelu = [](int microbatch) {
    return [microbatch](const Instr& i) { return i.kind == "bias_gelu" && i.microbatch == microbatch; };
  };
  const Operand kept = at(0, find(0, gelu(0))).out[0], next = at(0, find(0, gelu(1))).out[0];
  program().buffers[next.buffer].offset = program().buffers[kept.buffer].offset;
  const Status status = check_uses(program());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, "V004");
  EXPECT_NE(status.error().cause.find("'" + kept.name + "' was written over by"), std::string::npos)
      << status.error().cause;
}

TEST_F(PipelineFault, a_tied_weights_gradient_left_on_its_copy) {
  erase_instr(program(0), find(0, joins_tied));
  replan();
  expect("V007", "'wte.weight.grad' is not what the model makes", "(norms");
}

TEST_F(PipelineFault, a_tied_weights_gradient_added_twice) {
  const InstrId id = find(0, joins_tied);
  insert_instr(program(0), id, at(0, id));
  replan();
  expect("V007", "'wte.weight.grad' is not what the model makes", "(norms");
}

TEST_F(PipelineFault, a_tied_weight_not_sent_back_to_its_copy) {
  erase_instr(program(0),
              find(0, [](const Instr& i) { return i.kind == "send" && starts(i.in[0], "params."); }));
  erase_instr(program(1),
              find(1, [](const Instr& i) { return i.kind == "recv" && starts(i.out[0], "params."); }));
  replan();
  expect("V007", "'wte.weight' is not brought up to date on every rank", "wte.weight");
}

TEST_F(PipelineFault, a_tied_weight_sent_back_before_its_update) {
  const InstrId send = find(0, [](const Instr& i) { return i.kind == "send" && starts(i.in[0], "params."); });
  const BufferId params = at(0, send).in[0].buffer;
  const InstrId update =
      find(0, [params](const Instr& i) { return i.kind == "update" && i.out[0].buffer == params; });
  move(0, send, update);
  replan();
  expect("V007", "is handed over as 'wte.weight', and is not what the model makes of it", "(send");
}

TEST_F(PipelineFault, a_loss_broadcast_from_the_wrong_stage) {
  const auto loss = [this](size_t klass) {
    const BufferId buffer = programs_[klass].outputs.at("loss").buffer;
    return find(klass,
                [buffer](const Instr& i) { return i.kind == "broadcast" && i.out[0].buffer == buffer; });
  };
  const InstrId here = loss(0), there = loss(1);
  at(0, here).peer = 0;
  EXPECT_EQ(check_symmetric(programs_).error().code, "V002");
  at(1, there).peer = 0;
  const Status status = check_meaning(programs_, *reference_);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, "V007");
}

TEST_F(PipelineFault, a_norm_of_one_stage_alone) {
  for (size_t klass : {0u, 1u}) erase_instr(program(klass), find(klass, over_stages));
  replan();
  expect("V007", "the norm is not that of every gradient, each once", "(clip_scale");
}

TEST_F(PipelineFault, a_norm_summed_over_the_stages_twice) {
  for (size_t klass : {0u, 1u}) {
    const InstrId id = find(klass, over_stages);
    insert_instr(program(klass), id, at(klass, id));
  }
  replan();
  expect("V007", "adds to the norm what is not that of this stage's gradients, each once", "(all_reduce");
}

TEST_F(PipelineFault, a_count_of_one_rank_of_the_last_stage) {
  erase_instr(program(1),
              find(1, [](const Instr& i) { return i.kind == "all_reduce" && i.in[0].dtype == Dtype::i64; }));
  replan();
  expect("V007", "is handed over as 'count', and is not what the model makes of it", "(broadcast count");
}

// -- ZeRO -------------------------------------------------------------------------------------------
class Zero1Fault : public Faulty {
 protected:
  Zero1Fault() : Faulty(kZero1) {}
  static bool gathers(const Instr& i) { return i.kind == "all_gather" && i.phase == Phase::step; }
};

TEST_F(Zero1Fault, parameters_not_gathered_after_their_update) {
  const InstrId id = find(0, gathers);
  const std::string name =
      program().params[program().layouts[static_cast<size_t>(at(0, id).layout)].leaves[0].param].name;
  erase_instr(program(), id);
  replan();
  EXPECT_EQ(refusing(), "V007");
  EXPECT_NE(check_meaning(programs_, *reference_).error().cause.find("is not brought up to date"),
            std::string::npos);
}

TEST_F(Zero1Fault, parameters_gathered_before_their_update) {
  const InstrId gather = find(0, gathers);
  const int32_t layout = at(0, gather).layout;
  move(0, gather, find(0, [layout](const Instr& i) { return i.kind == "update" && i.layout == layout; }));
  replan();
  EXPECT_EQ(check_meaning(programs_, *reference_).error().code, "V007");
}

TEST_F(Zero1Fault, an_update_of_parts_that_nobody_copied) {
  erase_instr(program(), find(0, [](const Instr& i) { return i.kind == "own_part"; }));
  replan();
  EXPECT_EQ(check_meaning(programs_, *reference_).error().code, "V007");
}

class StatisticsFault : public Faulty {
 protected:
  StatisticsFault() : Faulty(kLamb) {}
  static bool sums(const Instr& i) { return i.kind == "all_reduce" && i.in[0].name == "stats"; }
};

TEST_F(StatisticsFault, of_a_part_alone) {
  erase_instr(program(), find(0, sums));
  replan();
  expect("V007", "is not updated with its own statistics, over all of it", "(update");
}

TEST_F(StatisticsFault, taken_behind_the_update_of_their_parameters) {
  const InstrId stats = find(0, [](const Instr& i) { return i.kind == "stats"; });
  const int32_t layout = at(0, stats).layout;
  move(0, stats, find(0, [layout](const Instr& i) { return i.kind == "update" && i.layout == layout; }));
  replan();
  EXPECT_EQ(check_meaning(programs_, *reference_).error().code, "V007");
}

TEST_F(StatisticsFault, of_another_bucket) {
  const InstrId first = find(0, [](const Instr& i) { return i.kind == "update"; });
  const InstrId other = find_last(0, [](const Instr& i) { return i.kind == "update"; });
  ASSERT_NE(first, other);
  std::swap(at(0, first).in[2], at(0, other).in[2]);
  replan();
  EXPECT_EQ(check_meaning(programs_, *reference_).error().code, "V007");
}

class Zero2Fault : public Faulty {
 protected:
  Zero2Fault() : Faulty(kZero2) {}
  FlatLayout& cut_layout() {
    return *std::ranges::find_if(program().layouts, [](const FlatLayout& l) { return !l.axes.empty(); });
  }
  void expect_layout_refused() {
    const Status status = check_form(programs_);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, "V007");
    EXPECT_EQ(status.error().cause, "the parts of its members are not all of a bucket, each element once");
    EXPECT_NE(status.error().place.find("layout of '"), std::string::npos);
  }
};

TEST_F(Zero2Fault, cuts_that_leave_out_the_last_element) {
  --cut_layout().cuts.back();
  expect_layout_refused();
}
TEST_F(Zero2Fault, cuts_that_leave_out_the_first_element) {
  ++cut_layout().cuts.front();
  expect_layout_refused();
}
TEST_F(Zero2Fault, cuts_that_overlap) {
  std::swap(cut_layout().cuts[1], cut_layout().cuts[2]);
  expect_layout_refused();
}
TEST_F(Zero2Fault, a_member_without_a_part) {
  cut_layout().cuts.pop_back();
  expect_layout_refused();
}

TEST_F(Zero2Fault, norms_of_parts_without_zeros_before_them) {
  erase_instr(program(), find(0, [](const Instr& i) { return i.kind == "zeros"; }));
  replan();
  expect("V007", "the numbers of other members' parts start with what was there before", "(norms");
}

TEST_F(Zero2Fault, a_part_of_the_gradients_reduced_once_more) {
  const InstrId norms =
      find(0, [](const Instr& i) { return i.kind == "norms" && starts(i.in[0], "grad_part"); });
  Instr sum = at(0, find(0, [](const Instr& i) { return i.kind == "all_reduce"; }));
  sum.in = sum.out = {at(0, norms).in[0]};
  insert_instr(program(), norms, sum);
  replan();
  expect("V007", "is summed over dp, on which no rank has an addend of it", "(all_reduce");
}

TEST_F(Zero2Fault, a_microbatch_that_is_not_added_to_the_part) {
  erase_instr(program(),
              find(0, [](const Instr& i) { return i.kind == "add" && starts(i.out[0], "grad_part"); }));
  replan();
  expect("V007", "is not what the model makes: it lacks '", "(norms");
}

TEST_F(Zero2Fault, a_part_of_another_buckets_layout) {
  const InstrId scatter = find(0, [](const Instr& i) { return i.kind == "reduce_scatter"; });
  const int32_t mine = at(0, scatter).layout;
  const InstrId norms = find_norms(0, mine);
  at(0, norms).layout = mine == 0 ? 1 : 0;
  EXPECT_EQ(refusing(), "V007");
}

TEST(HierarchicalFault, a_reduction_that_stays_within_the_sub_axis) {
  class Programs : public Planted {
   public:
    Programs() : Planted(compiled_of(kHierarchical)) {
      erase_instr(programs_[0], find_instr(programs_[0], [](const Instr& i) {
                    return i.kind == "all_reduce" && starts(i.in[0], "grad_part");
                  }));
      replan();
      expect("V007", "is not summed over dp_out", "(norms");
    }
  } programs;
}

class Zero3Fault : public Faulty {
 protected:
  Zero3Fault() : Faulty(kZero3) {}
};

TEST_F(Zero3Fault, parameters_that_are_used_without_being_gathered) {
  erase_instr(program(),
              find(0, [](const Instr& i) { return i.kind == "all_gather" && i.phase == Phase::forward; }));
  replan();
  EXPECT_NE(refusing().find("V006"), std::string::npos);
}

TEST_F(Zero3Fault, a_use_that_does_not_wait_for_the_prefetched_gather) {
  const InstrId gather = find(0, [](const Instr& i) { return i.kind == "all_gather"; });
  const InstrId use = find(0, [gather](const Instr& i) { return std::ranges::count(i.waits, gather) > 0; });
  std::erase(at(0, use).waits, gather);
  EXPECT_EQ(check_races(program()).error().code, "V004");
  EXPECT_NE(check_races(program()).error().place.find(named(use)), std::string::npos);
}

class NearGathersFault : public Faulty {
 protected:
  NearGathersFault() : Faulty(kNearGathers) {}
  auto over(const char* kind, const std::string& name) const {
    return [kind, axes = std::vector<AxisId>{axis(name)}](const Instr& i) {
      return i.kind == kind && i.axes == axes && i.layout >= 0;
    };
  }
};

TEST_F(NearGathersFault, a_gradient_that_is_reduced_near_and_not_far) {
  const InstrId far = find(0, over("reduce_scatter", "dp_out"));
  Instr& instr = at(0, far);
  const Instr copied = instr;
  instr.kind = "slice";
  instr.axes = {};
  instr.lane = 0;
  instr.layout = -1;
  instr.in[0].dims = copied.out[0].dims;
  instr.attrs = {{"dim", int64_t{0}}, {"start", int64_t{0}}, {"size", copied.out[0].dims[0]}};
  replan();
  EXPECT_EQ(refusing(), "V007");
}

TEST_F(NearGathersFault, updated_parts_that_are_gathered_near_instead_of_far) {
  const InstrId far = find(0, over("all_gather", "dp_out"));
  at(0, far).axes = {axis("dp_in")};
  at(0, far).lane = lane(0, "dp_in");
  replan();
  expect("V002", "what it reads and what it writes do not fit each other", named(far));
}

TEST_F(NearGathersFault, updated_parts_that_are_not_gathered) {
  erase_instr(program(), find(0, over("all_gather", "dp_out")));
  replan();
  EXPECT_EQ(refusing(), "V007");
}

// -- tensor -----------------------------------------------------------------------------------------
class TensorFault : public Faulty {
 protected:
  TensorFault() : Faulty(kTensor) {}
  auto reduces(const std::vector<AxisId>& axes) const {
    return [axes](const Instr& i) {
      return i.kind == "all_reduce" && i.axes == axes && starts(i.in[0], "grads.");
    };
  }
  bool norms_over_tp(const Instr& i) const {
    return i.kind == "all_reduce" && i.in[0].name == "norms" && i.axes == std::vector<AxisId>{axis("tp")};
  }
};

TEST_F(TensorFault, a_wrong_group) {
  const InstrId id = find(0, reduces({axis("dp")}));
  at(0, id).axes = {axis("tp")};
  at(0, id).lane = lane(0, "tp");
  replan();
  expect("V007", "is summed over tp, on which no rank has an addend of it", "(all_reduce");
}

// Norms between the regions see a part of the sequence on each rank: their weights' gradients are addends.
TEST_F(TensorFault, a_missing_reduction_over_the_regions_between) {
  const InstrId id = find(0, reduces({axis("dp"), axis("tp")}));
  at(0, id).axes = {axis("dp")};
  expect("V007", "is not summed over tp", "(norms");
}

TEST_F(TensorFault, a_weight_gradient_reduced_over_the_axis_that_cuts_it) {
  const InstrId id = find(0, reduces({axis("dp")}));
  at(0, id).axes = {axis("dp"), axis("tp")};
  expect("V007", "is summed over tp, on which no rank has an addend of it", "(all_reduce");
}

TEST_F(TensorFault, a_norm_counted_once_for_each_rank) {
  const InstrId id = find(0, [this](const Instr& i) { return norms_over_tp(i); });
  const Operand all = at(0, find(0, [](const Instr& i) { return i.kind == "sum"; })).in[0];
  at(0, id).in = at(0, id).out = {all};
  replan();
  expect("V007", "", "(sum");
}

TEST_F(TensorFault, a_norm_of_one_ranks_part_alone) {
  erase_instr(program(), find(0, [this](const Instr& i) { return norms_over_tp(i); }));
  replan();
  expect("V007", "squares are not summed over tp, over which their gradients are cut", "(sum");
}

// -- keys and values that several ranks hold --------------------------------------------------------
class SharedHeadsFault : public Faulty {
 protected:
  SharedHeadsFault() : Faulty(kSharedHeads) {}
  InstrId sum_of_weights() const {
    return find(0, [](const Instr& i) { return i.kind == "all_reduce" && starts(i.in[0], "grads."); });
  }
};

// Each has the gradient that comes from its own query heads.
TEST_F(SharedHeadsFault, a_gradient_that_is_not_summed_over_those_that_share) {
  erase_instr(program(), sum_of_weights());
  replan();
  expect("V007", "is not summed over tp_in", "(norms");
}

TEST_F(SharedHeadsFault, a_gradient_summed_over_those_that_do_not_share) {
  const InstrId id = sum_of_weights();
  at(0, id).axes = {axis("tp_out")};
  at(0, id).lane = lane(0, "tp_out");
  replan();
  expect("V007", "is summed over tp_out, on which no rank has an addend of it", "(all_reduce");
}

TEST_F(SharedHeadsFault, a_sum_behind_a_region_over_a_part_of_the_axis) {
  const std::vector<AxisId> both{axis("tp_out"), axis("tp_in")};
  const InstrId id =
      find(0, [&](const Instr& i) { return i.kind == "all_reduce" && i.axes == both && i.microbatch == 0; });
  at(0, id).axes = {axis("tp_in")};
  at(0, id).lane = lane(0, "tp_in");
  replan();
  EXPECT_EQ(refusing().substr(0, 4), "V007");
}

// -- experts ----------------------------------------------------------------------------------------
class ExpertFault : public Faulty {
 protected:
  ExpertFault() : Faulty(kExperts) {}
};

TEST_F(ExpertFault, an_experts_gradient_reduced_over_the_axis_of_the_experts) {
  const InstrId norms = find(0, [this](const Instr& i) {
    if (i.kind != "norms") return false;
    const FlatLayout& layout = programs_[0].layouts[static_cast<size_t>(i.layout)];
    return programs_[0].params[layout.leaves[0].param].name.find("experts") != std::string::npos;
  });
  Instr sum = at(0, find(0, [](const Instr& i) { return i.kind == "all_reduce" && i.phase == Phase::step; }));
  sum.in = sum.out = {at(0, norms).in[0]};
  insert_instr(program(), norms, sum);
  replan();
  expect("V007", "is summed over dp, on which no rank has an addend of it", "(all_reduce");
}

TEST_F(ExpertFault, an_exchange_of_fewer_slots_than_there_are) {
  const InstrId id = find(0, [](const Instr& i) { return i.kind == "all_to_all"; });
  at(0, id).out[0].dims.change([](auto& dims) { dims[0] = 1; });
  EXPECT_EQ(check_symmetric(programs_).error().code, "V002");
  EXPECT_NE(check_symmetric(programs_).error().place.find(named(id)), std::string::npos);
}

// -- context ----------------------------------------------------------------------------------------
class RingFault : public Faulty {
 protected:
  RingFault() : Faulty(kRing) {}
};

TEST_F(RingFault, a_block_sent_on_before_it_has_come) {
  const InstrId id = find(0, [](const Instr& i) { return i.kind == "permute" && i.phase == Phase::forward; });
  std::swap(at(0, id).in[0], at(0, id).out[0]);
  replan();
  EXPECT_NE(refusing().find("V006"), std::string::npos);
}

TEST_F(RingFault, a_gradient_summed_over_a_part_of_the_sequence) {
  erase_instr(program(),
              find(0, [](const Instr& i) { return i.kind == "all_reduce" && starts(i.in[0], "grads."); }));
  replan();
  expect("V007", "is not summed over cp", "(norms");
}

}  // namespace
}  // namespace tenon::test
