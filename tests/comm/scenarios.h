// What a rank does in one test, the same for virtual ranks and for processes. A scenario throws what it
// finds.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "comm_api.h"
#include "run/rendezvous/rendezvous.h"

namespace tenon::test {

// One rank of a test.
struct RankContext {
  const tenon_comm& table;
  run::Rendezvous& rendezvous;  // for meeting outside the plugin
  int rank;
  int world;
  std::string tls;
  bool reachable;  // operations are done in memory from alloc

  Domain::Settings settings(int64_t timeout_ns = 20'000'000'000) const {
    return {rank, world, timeout_ns, tls, reachable};
  }
  // Returns when all ranks have called it; `name` is used once.
  void meet(const std::string& name) const;
};

using Scenario = void (*)(const RankContext&);

// By name, so that a child process can be told which. The fault scenarios need a world of at least 2.
const std::map<std::string, Scenario>& scenarios();

void every_kind_matches_the_reference(const RankContext& c);
void groups_work_side_by_side(const RankContext& c);
void many_plans_are_in_flight(const RankContext& c);
void one_plan_starts_many_times(const RankContext& c);
void bad_operations_are_refused(const RankContext& c);
void a_missing_member_is_named_after_the_timeout(const RankContext& c);
void a_mismatch_names_both_sides(const RankContext& c);
void a_mismatched_message_names_both_ends(const RankContext& c);
void an_abort_ends_a_wait(const RankContext& c);
void an_abort_reaches_whoever_comes_later(const RankContext& c);
void an_abort_gives_memory_back(const RankContext& c);
void a_rank_stops(const RankContext& c);
void a_rank_dies(const RankContext& c);  // the last rank exits without a word; never returns there

void a_rank_freezes(const RankContext& c);
void a_rank_is_killed(const RankContext& c);  // the last rank ends by SIGKILL

}  // namespace tenon::test
