// Steps and plans: operations from start to end.
#include <algorithm>

#include "domain.h"

namespace tenon::comm_ucx {

using comm::Op;
using sdk::Failure;

Step::Step(Group& group, comm::Op op, comm::Reducer reducer)
    : group_(group),
      op_(std::move(op)),
      algorithm_(op_, reducer),
      transfers_(group, op_, algorithm_.capacity()) {
  if (group.has_board_for(op_)) meeting_ = std::make_unique<Meeting>(group, op_, reducer);
  // Else the staging is needed only if some other member's memory cannot be reached.
  if (meeting_ == nullptr || !meeting_->reachable()) algorithm_.reserve();
}

std::string Step::kind_text() const { return comm::describe(op_); }

std::string Step::title() const {
  return kind_text() + " (operation " + std::to_string(number_) + " of group " + group_.text() + ")";
}

std::string Step::waiting_for() const {
  return by_messages_ ? transfers_.waiting_for() : meeting_->waiting_for();
}

bool Step::cancel() { return by_messages_ ? transfers_.cancel() : meeting_->cancel(); }

void Step::start() {
  done_ = false;
  by_messages_ = false;
  number_ = group_.next_number(op_);
  if (meeting_ == nullptr) return begin_messages();
  meeting_->begin(number_);
  meeting_->progress();
}

void Step::begin_messages() {
  by_messages_ = true;
  stage_ = 0;
  algorithm_.reserve();
  transfers_.begin(number_);
  if (algorithm_.num_stages() > 0) algorithm_.post(0, transfers_);
}

std::optional<Problem> Step::progress() {
  if (by_messages_) return progress_messages();
  const Meeting::State state = meeting_->progress();
  if (std::optional<Problem> problem = meeting_->problem()) return problem;
  if (state == Meeting::State::kElsewhere) begin_messages();
  done_ = state == Meeting::State::kDone;
  return std::nullopt;
}

std::optional<Problem> Step::progress_messages() {
  while (!done_) {
    if (std::optional<Problem> problem = transfers_.problem()) return problem;
    if (!transfers_.stage_done()) return std::nullopt;
    if (stage_ < algorithm_.num_stages()) algorithm_.finish(stage_++);
    if (stage_ < algorithm_.num_stages()) {
      transfers_.next_stage();
      algorithm_.post(stage_, transfers_);
      continue;
    }
    if (!transfers_.cards_done()) return std::nullopt;
    if (std::optional<Problem> problem = transfers_.problem()) return problem;
    done_ = true;
  }
  return std::nullopt;
}

Plan::Plan(Group& group, const tenon_comm_op* const* ops, uint32_t num_ops) : group_(group) {
  const std::lock_guard lock(domain().mutex());
  for (uint32_t i = 0; i < num_ops; ++i) {
    Op op = comm::check_op(*ops[i], group.me(), group.size());
    const comm::Reducer reducer = comm::reduces(op.kind) ? comm::find_reducer(op.reduce, op.dtype) : nullptr;
    if (comm::reduces(op.kind) && reducer == nullptr) {
      throw Failure(TENON_E_UNSUPPORTED, comm::describe(op) + ": no such reduction for this dtype");
    }
    if (comm::pairwise(op.kind) && op.peer == op.me) group.connect_self();
    steps_.push_back(std::make_unique<Step>(group, std::move(op), reducer));
  }
  domain().enroll();
}

Plan::~Plan() {
  const std::lock_guard lock(domain().mutex());
  domain().withdraw();
}

bool Plan::by_messages() const {
  if (state_ != State::kInFlight) return false;
  return std::any_of(steps_.begin(), steps_.end(), [](const auto& s) { return s->by_messages(); });
}

bool Plan::meets() const {
  if (state_ != State::kInFlight) return false;
  return std::any_of(steps_.begin(), steps_.end(), [](const auto& s) { return s->meets(); });
}

void Plan::start() {
  group_.look_at_board();
  if (group_.failure()) {
    fail(*group_.failure());
    return;
  }
  state_ = State::kInFlight;
  for (const auto& step : steps_) step->start();
}

bool Plan::progress() {
  if (state_ != State::kInFlight) return true;
  bool finished = true;
  group_.look_at_board();
  for (const auto& step : steps_) {
    if (group_.failure()) break;
    if (step->done()) continue;
    if (const std::optional<Problem> problem = step->progress()) {
      group_.fail({problem->code, problem->text}, true);
      break;
    }
    finished = finished && step->done();
  }
  if (finished && !group_.failure()) state_ = State::kDone;
  if (state_ == State::kInFlight && group_.failure()) fail(*group_.failure());
  return state_ != State::kInFlight;
}

void Plan::fail(const Problem& problem) {
  std::string title;
  for (auto& step : steps_) {
    if (state_ != State::kInFlight) {
      if (title.empty()) title = step->kind_text();  // not started: no number yet
      continue;
    }
    if (step->done()) continue;
    if (title.empty()) title = step->title();
    if (!step->cancel()) domain().freeze(std::move(step));
  }
  std::erase(steps_, nullptr);
  state_ = State::kFailed;
  const bool named = problem.text.find(title.substr(0, title.find(" ("))) != std::string::npos;
  problem_ = {problem.code, named ? problem.text : title + ": " + problem.text};
}

void Plan::time_out(int64_t waited_ns) {
  std::string text =
      "rank " + std::to_string(domain().rank()) + " waited " + seconds_text(waited_ns) + " for ";
  for (const auto& step : steps_) {
    if (step->done()) continue;
    text += step->title() + "; " + step->waiting_for();
    break;
  }
  group_.fail({TENON_E_TIMEOUT, text}, true);
  progress();
}

}  // namespace tenon::comm_ucx
