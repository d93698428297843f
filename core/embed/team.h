// The threads of a run in an embedding program: one per rank, parked between calls.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.h"
#include "embed/log.h"

namespace tenon::embed {

// Its threads block all signals, so that handlers run on the program's own threads, and compute in the
// default floating-point environment, so that results do not depend on who calls.
class Team {
 public:
  // `log` must outlive it. Error E013: no threads to be had.
  static Result<std::unique_ptr<Team>> start(int size, LogQueue& log);
  ~Team();  // run() must not be in progress
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Calls task(i) on thread i, for all of them, and returns when all are done; delivers the log meanwhile.
  // `task` must not throw. One call at a time.
  void run(const std::function<void(int)>& task);

 private:
  explicit Team(LogQueue& log) : log_(log) {}
  void serve(int index);

  LogQueue& log_;
  std::mutex mutex_;  // guards the three below
  std::condition_variable changed_;
  uint64_t round_ = 0;
  const std::function<void(int)>* task_ = nullptr;
  bool stop_ = false;
  std::atomic<size_t> busy_{0};
  std::vector<std::thread> threads_;
};

}  // namespace tenon::embed
