#include "workers.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <new>

namespace tenon::mutants {
namespace {

constexpr unsigned kSeconds = 30;  // for one mutant: thousands of times what it takes

// Memory that a process shares with those that it forks.
class Shared {
 public:
  explicit Shared(size_t bytes) : bytes_(bytes) {
    at_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Shared() { ::munmap(at_, bytes_); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  template <class T>
  T* as() const {
    return static_cast<T*>(at_);
  }

 private:
  size_t bytes_;
  void* at_ = nullptr;
};

struct Seat {  // of a process
  pid_t pid = 0;
  uint64_t mutant = 0;
  volatile Stage stage = Stage::idle;
};

class Workers {
 public:
  Workers(Subject& subject, const std::vector<Mutant>& mutants, int processes, uint64_t seed)
      : subject_(subject),
        mutants_(mutants),
        seed_(seed),
        judgements_(sizeof(Judgement) * (mutants.size() + 1)),
        seats_(sizeof(Seat) * static_cast<size_t>(processes)),
        next_(sizeof(std::atomic<uint64_t>)),
        processes_(processes) {
    for (size_t i = 0; i < mutants.size(); ++i) new (judgements_.as<Judgement>() + i) Judgement();
    new (next_.as<std::atomic<uint64_t>>()) std::atomic<uint64_t>(0);
    for (int i = 0; i < processes; ++i) new (seats_.as<Seat>() + i) Seat();
  }

  std::vector<Judgement> run() {
    for (int i = 0; i < processes_; ++i) start(seats_.as<Seat>()[i]);
    int left = processes_;
    while (left > 0) {
      int status = 0;
      const pid_t ended = ::waitpid(-1, &status, 0);
      for (int i = 0; i < processes_; ++i) {
        Seat& seat = seats_.as<Seat>()[i];
        if (seat.pid != ended) continue;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
          --left;
          continue;
        }
        blame(seat, status);
        start(seat);
      }
    }
    const auto* first = judgements_.as<Judgement>();
    return {first, first + mutants_.size()};
  }

 private:
  void start(Seat& seat) {
    seat.stage = Stage::idle;
    const pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error("cannot fork");
    if (pid > 0) {
      seat.pid = pid;
      return;
    }
    work(seat);
    ::_exit(0);
  }

  void work(Seat& seat) {
    Judge judge(subject_, seat.stage);
    // What a crash has to say, an assertion for instance, would be said thousands of times.
    const int nowhere = ::open("/dev/null", O_WRONLY);
    ::dup2(nowhere, STDERR_FILENO);
    auto& next = *next_.as<std::atomic<uint64_t>>();
    for (uint64_t i = next++; i < mutants_.size(); i = next++) {
      seat.mutant = i;
      ::alarm(kSeconds);
      judge.judge(mutants_[i], seed_ + i, judgements_.as<Judgement>()[i]);
      seat.stage = Stage::idle;
    }
    ::alarm(0);
  }

  void blame(const Seat& seat, int status) {
    if (seat.stage == Stage::idle) throw std::runtime_error("a worker ended between two mutants");
    if (seat.stage == Stage::changing) throw std::runtime_error("a worker ended while it changed a program");
    Judgement& judgement = judgements_.as<Judgement>()[seat.mutant];
    judgement.verdict = seat.stage == Stage::checking ? Verdict::crashed_checks : Verdict::crashed_run;
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    std::strncpy(judgement.differs, signal == SIGALRM ? "does not end" : ::strsignal(signal),
                 sizeof judgement.differs - 1);
  }

  Subject& subject_;
  const std::vector<Mutant>& mutants_;
  const uint64_t seed_;
  Shared judgements_, seats_, next_;
  const int processes_;
};

}  // namespace

std::vector<Judgement> judge_all(Subject& subject, const std::vector<Mutant>& mutants, int processes,
                                 uint64_t seed) {
  return Workers(subject, mutants, processes, seed).run();
}

}  // namespace tenon::mutants
