#include "embed/team.h"

#include <fenv.h>
#include <pthread.h>
#include <signal.h>

#include <system_error>

namespace tenon::embed {

Result<std::unique_ptr<Team>> Team::start(int size, LogQueue& log) {
  std::unique_ptr<Team> team(new Team(log));
  team->threads_.reserve(static_cast<size_t>(size));
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited by the threads that start below
  std::string failure;
  try {
    for (int i = 0; i < size; ++i) team->threads_.emplace_back([t = team.get(), i] { t->serve(i); });
  } catch (const std::system_error& e) {
    failure = e.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failure.empty()) return team;
  return Error{"E013", "cannot start the threads of " + std::to_string(size) + " ranks: " + failure, "",
               "ask for fewer ranks, or raise the limit on processes (ulimit -u)", TENON_E_MEMORY};
}

Team::~Team() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void Team::run(const std::function<void(int)>& task) {
  busy_.store(threads_.size());
  {
    const std::lock_guard lock(mutex_);
    task_ = &task;
    ++round_;
    changed_.notify_all();
  }
  log_.deliver_until([this] { return busy_.load() == 0; });
}

void Team::serve(int index) {
  for (uint64_t seen = 0;;) {
    const std::function<void(int)>* task = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
      task = task_;
    }
    fesetenv(FE_DFL_ENV);  // also undoes what a plugin did
    (*task)(index);
    if (busy_.fetch_sub(1) == 1) log_.wake();
  }
}

}  // namespace tenon::embed
