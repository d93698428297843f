#include "schedule.h"

#include <algorithm>

#include "base/rng.h"

namespace tenon::mutants {

Schedule::Schedule(const std::vector<RankWork>& ranks, const Channels& channels, Compute compute)
    : work_(ranks), channels_(channels), compute_(std::move(compute)), instances_(channels.size()) {
  for (const RankWork& work : ranks) {
    Rank& rank = ranks_.emplace_back();
    rank.lanes.resize(work.lanes);
    std::vector<size_t> owed(work.lanes);
    for (InstrId id = 0; id < work.instrs.size(); ++id) {
      for (InstrId wait : work.instrs[id].waits) {
        // A wait for what comes no earlier is never over.
        const size_t all = wait < id ? rank.position[wait] + 1 : work.instrs.size() + 1;
        size_t& mine = owed[work.instrs[wait].lane];
        mine = std::max(mine, all);
      }
      rank.owed.push_back(owed);
      Lane& lane = rank.lanes[work.instrs[id].lane];
      rank.position.push_back(lane.instrs.size());
      rank.compute_before.push_back(rank.lanes[0].instrs.size());
      lane.instrs.push_back(id);
    }
  }
  started_.assign(ranks.size(), std::vector<size_t>(channels.size()));
}

void Schedule::run(Completion completion, uint64_t seed) {
  switch (completion) {
    case Completion::at_start: return early();
    case Completion::at_first_wait: return late();
    case Completion::at_random: return mixed(seed);
  }
}

// -- what may happen --------------------------------------------------------------------------------

bool Schedule::ready(size_t rank, InstrId id) {
  Rank& mine = ranks_[rank];
  for (size_t at = 0; at < mine.lanes.size(); ++at) {
    Lane& lane = mine.lanes[at];
    while (lane.ended < lane.instances.size() && lane.instances[lane.ended]->complete) ++lane.ended;
    if ((at == 0 ? lane.next : lane.ended) < mine.owed[id][at]) return false;
  }
  return true;
}

bool Schedule::try_compute(size_t rank) {
  Lane& lane = ranks_[rank].lanes[0];
  if (lane.next == lane.instrs.size() || !ready(rank, lane.instrs[lane.next])) return false;
  compute_(rank, work_[rank].instrs[lane.instrs[lane.next]]);
  ++lane.next;
  return true;
}

bool Schedule::try_start(size_t rank, size_t at) {
  Rank& mine = ranks_[rank];
  Lane& lane = mine.lanes[at];
  if (lane.next == lane.instrs.size()) return false;
  const InstrId id = lane.instrs[lane.next];
  if (mine.lanes[0].next < mine.compute_before[id]) return false;
  if (!ready(rank, id)) return false;
  start(rank, id);
  return true;
}

void Schedule::start(size_t rank, InstrId id) {
  const Work& work = work_[rank].instrs[id];
  Lane& lane = ranks_[rank].lanes[work.lane];
  ++lane.next;
  if (!work.post) {  // an update on a lane of transfers
    compute_(rank, work);
    static Instance done{{}, 0, true};
    lane.instances.push_back(&done);
    return;
  }
  const Post& post = *work.post;
  auto& known = instances_[post.channel];
  const size_t number = started_[rank][post.channel]++;
  while (known.size() <= number) {
    known.push_back(std::make_unique<Instance>());
    known.back()->posts.resize(channels_.members(post.channel));
  }
  Instance& instance = *known[number];
  if (instance.posts[post.member] != nullptr) throw Fault("a member starts a transfer twice");
  instance.posts[post.member] = &post;
  ++instance.started;
  lane.instances.push_back(&instance);
  if (!instance.full()) return;
  full_.push_back(&instance);
  if (at_once_) complete(instance);
}

void Schedule::complete(Instance& instance) {
  perform(instance.posts);
  instance.complete = true;
  std::erase(full_, &instance);
}

bool Schedule::finished() const {
  return std::ranges::all_of(ranks_, [](const Rank& rank) {
    return std::ranges::all_of(rank.lanes, [](const Lane& lane) { return lane.next == lane.instrs.size(); });
  });
}

// Behind the last instructions every transfer is waited for.
void Schedule::finish() {
  while (!full_.empty()) complete(*full_.front());
  for (const auto& channel : instances_) {
    for (const auto& instance : channel) {
      if (!instance->complete) throw Fault("a transfer of which a member never comes");
    }
  }
}

bool Schedule::sweep() {
  bool moved = false;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (size_t lane = 1; lane < ranks_[rank].lanes.size(); ++lane) {
      while (try_start(rank, lane)) moved = true;
    }
    moved |= try_compute(rank);
  }
  return moved;
}

// -- the three ways ---------------------------------------------------------------------------------

void Schedule::early() {
  at_once_ = true;
  while (sweep()) {
  }
  if (!finished()) throw Fault("the ranks are stuck");
  finish();
}

Schedule::Instance* Schedule::awaited(size_t rank, InstrId id) const {
  for (InstrId wait : work_[rank].instrs[id].waits) {
    const size_t at = work_[rank].instrs[wait].lane;
    if (at == 0) continue;
    const Lane& lane = ranks_[rank].lanes[at];
    for (size_t i = 0; i <= ranks_[rank].position[wait] && i < lane.instances.size(); ++i) {
      if (lane.instances[i]->full() && !lane.instances[i]->complete) return lane.instances[i];
    }
  }
  return nullptr;
}

void Schedule::follow_list(size_t rank) {
  Rank& mine = ranks_[rank];
  for (; mine.next < work_[rank].instrs.size() && ready(rank, mine.next); ++mine.next) {
    if (work_[rank].instrs[mine.next].lane == 0)
      try_compute(rank);
    else
      start(rank, mine.next);
  }
}

void Schedule::late() {
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) follow_list(rank);
    for (size_t rank = 0; rank < ranks_.size() && !moved; ++rank) {
      if (ranks_[rank].next == work_[rank].instrs.size()) continue;
      while (Instance* instance = awaited(rank, ranks_[rank].next)) {
        complete(*instance);
        moved = true;
      }
    }
  }
  if (!finished()) throw Fault("the ranks are stuck");
  finish();
}

void Schedule::mixed(uint64_t seed) {
  uint64_t drawn = 0;
  const auto draw = [&](size_t n) {
    return std::min(n - 1, static_cast<size_t>(uniform_at(seed, drawn++) * static_cast<double>(n)));
  };
  while (true) {
    bool moved = false;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const size_t rank = draw(ranks_.size());
      switch (draw(3)) {
        case 0:
          for (size_t most = draw(6) + 1; most > 0 && try_compute(rank); --most) moved = true;
          break;
        case 1:
          moved |= ranks_[rank].lanes.size() > 1 && try_start(rank, 1 + draw(ranks_[rank].lanes.size() - 1));
          break;
        default:
          if (full_.empty()) break;
          complete(*full_[draw(full_.size())]);
          moved = true;
      }
    }
    if (moved) continue;
    // Nobody was lucky: whatever can be done is done, and if that is nothing, a transfer ends.
    if (sweep()) continue;
    if (full_.empty()) break;
    complete(*full_[draw(full_.size())]);
  }
  if (!finished()) throw Fault("the ranks are stuck");
  finish();
}

}  // namespace tenon::mutants
