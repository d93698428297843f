#include "plan/show/simulate.h"

#include <algorithm>
#include <deque>

#include "plan/show/spans.h"
#include "plan/show/transfer_cost.h"

namespace tenon {
namespace {

constexpr double kUnknown = -1;

// A class's list, run as far as the other classes let it.
class Runner {
 public:
  Runner(size_t index, const Program& program, const Machine& machine, std::vector<SimulatedInstr>& instrs)
      : index_(index),
        program_(program),
        machine_(machine),
        instrs_(instrs),
        end_(program.instrs.size(), kUnknown),
        lane_end_(program.lanes.size()) {}

  const Program& program() const { return program_; }
  InstrId at() const { return next_; }
  bool done() const { return next_ == program_.instrs.size(); }
  bool crosses(const Instr& instr) const {
    return instr.lane != 0 && program_.pipeline_axis != kNone &&
           std::ranges::count(instr.axes, program_.pipeline_axis) > 0;
  }

  // When the next instruction can start; kUnknown while it waits for a transfer whose end is not known.
  double ready() const {
    const Instr& instr = program_.instrs[next_];
    double at = issued_;
    for (InstrId wait : instr.waits) {
      if (end_[wait] == kUnknown) return kUnknown;
      at = std::max(at, end_[wait]);
    }
    return at;
  }

  // Starts the next instruction at its own time; a transfer to other classes ends when they say.
  void start(double at, double end) {
    const Instr& instr = program_.instrs[next_];
    end_[next_] = end;
    if (instr.lane == 0) {
      time.waiting += at - issued_;
      time.busy += end - at;
      issued_ = end;
    } else {
      issued_ = at;  // the next instruction is issued behind this one
    }
    ++next_;
  }
  // FIFO on its lane.
  double after_lane(double at) const { return std::max(at, lane_end_[program_.instrs[next_].lane]); }
  void record(InstrId id, double start, double end) {
    const Instr& instr = program_.instrs[id];
    lane_end_[instr.lane] = std::max(lane_end_[instr.lane], end);
    end_[id] = end;
    finish = std::max(finish, end);
    if (instr.lane != 0) time.transfers += end - start;
    instrs_.push_back({index_, id, start, end});
  }
  double seconds(InstrId id) const { return seconds_of(program_, program_.instrs[id], machine_); }

  ClassTime time;
  double finish = 0;

 private:
  size_t index_;
  const Program& program_;
  const Machine& machine_;
  std::vector<SimulatedInstr>& instrs_;
  InstrId next_ = 0;
  double issued_ = 0;        // when the host comes to the next instruction
  std::vector<double> end_;  // per instruction; kUnknown: not yet known
  std::vector<double> lane_end_;
};

// A transfer between classes that not all its members have come to.
struct Meeting {
  struct Member {
    size_t runner;
    InstrId id;
  };
  std::vector<Member> members;
  double ready = 0;
};

class World {
 public:
  World(const std::vector<Program>& programs, const Machine& machine) {
    for (size_t i = 0; i < programs.size(); ++i) runners_.emplace_back(i, programs[i], machine, out_.instrs);
  }

  Simulation run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t i = 0; i < runners_.size(); ++i) moved |= advance(i);
    }
    for (Runner& runner : runners_) {
      out_.seconds = std::max(out_.seconds, runner.finish);
      out_.classes.push_back(runner.time);
    }
    return std::move(out_);
  }

 private:
  bool advance(size_t index) {
    Runner& runner = runners_[index];
    bool moved = false;
    while (!runner.done()) {
      const double ready = runner.ready();
      if (ready == kUnknown) break;
      const InstrId id = runner.at();
      const Instr& instr = runner.program().instrs[id];
      if (runner.crosses(instr)) {
        meet(index, id, runner.after_lane(ready));
        runner.start(ready, kUnknown);
        settle();
      } else {
        const double begin = instr.lane == 0 ? ready : runner.after_lane(ready);
        const double end = begin + runner.seconds(id);
        runner.start(instr.lane == 0 ? begin : ready, end);
        runner.record(id, begin, end);
      }
      moved = true;
    }
    return moved;
  }

  // Who must come, as classes.
  static std::vector<int64_t> members_of(const Program& program, const Instr& instr) {
    if (is_one_way(transfer_of(instr)))
      return {std::min<int64_t>(program.class_index, instr.peer),
              std::max<int64_t>(program.class_index, instr.peer)};
    std::vector<int64_t> all;
    for (int64_t i = 0; i < program.mesh.axes[program.pipeline_axis].size; ++i) all.push_back(i);
    return all;
  }

  void meet(size_t index, InstrId id, double ready) {
    const Program& program = runners_[index].program();
    const Instr& instr = program.instrs[id];
    const TransferKind kind = transfer_of(instr);
    const int64_t from = kind == TransferKind::send   ? program.class_index
                         : kind == TransferKind::recv ? instr.peer
                                                      : -1;
    const auto key = std::pair(members_of(program, instr), from);
    auto& queue = meetings_[key];
    auto it = std::ranges::find_if(queue, [&](const Meeting& meeting) {
      return std::ranges::none_of(meeting.members,
                                  [&](const auto& member) { return member.runner == index; });
    });
    if (it == queue.end()) it = queue.insert(queue.end(), Meeting{});
    it->members.push_back({index, id});
    it->ready = std::max(it->ready, ready);
  }

  void settle() {
    for (auto& [key, queue] : meetings_) {
      while (!queue.empty() && queue.front().members.size() == key.first.size()) {
        const Meeting meeting = std::move(queue.front());
        queue.pop_front();
        const double end = meeting.ready + runners_[meeting.members[0].runner].seconds(meeting.members[0].id);
        for (const auto& member : meeting.members)
          runners_[member.runner].record(member.id, meeting.ready, end);
      }
    }
  }

  Simulation out_;
  std::deque<Runner> runners_;
  std::map<std::pair<std::vector<int64_t>, int64_t>, std::deque<Meeting>> meetings_;
};

}  // namespace

double seconds_of(const Program& program, const Instr& instr, const Machine& machine) {
  if (instr.lane != 0) {
    const TransferCost cost = cost_of_transfer(program, instr);
    return cost.turns * machine.link_latency + cost.passed / machine.link_bytes;
  }
  const auto bytes = static_cast<double>(bytes_of(instr));
  return machine.launch + std::max(instr.flops / machine.flops, bytes / machine.memory_bytes);
}

double Simulation::idle_fraction() const {
  double busy = 0;
  for (const ClassTime& one : classes) busy += one.busy;
  const double all = seconds * static_cast<double>(classes.size());
  return all > 0 ? 1 - busy / all : 0;
}

Simulation simulate(const std::vector<Program>& programs, const Machine& machine) {
  return World(programs, machine).run();
}

double hidden_fraction(const Simulation& with, const std::vector<Program>& programs, const Machine& machine) {
  Machine free = machine;
  free.link_latency = 0;
  free.link_bytes = INFINITY;
  const Simulation without = simulate(programs, free);
  double transfers = 0, exposed = 0;
  for (size_t i = 0; i < with.classes.size(); ++i) {
    transfers += with.classes[i].transfers;
    exposed += with.classes[i].waiting - without.classes[i].waiting;
  }
  return transfers > 0 ? std::clamp(1 - exposed / transfers, 0.0, 1.0) : 0;
}

}  // namespace tenon
