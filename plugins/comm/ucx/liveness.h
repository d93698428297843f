// Whether processes of this host still run: the kernel tells at once, where UCX's keepalive takes seconds,
// and takes a process that nobody has waited for yet (a zombie) for alive.
#pragma once

#include <poll.h>

#include <cstdint>
#include <string>
#include <vector>

#include "exchange.h"

namespace tenon::comm_ucx {

// Who a process is, as it tells its peers.
struct ProcessIdentity {
  char boot_id[40] = {};       // the same kernel
  uint64_t pid_namespace = 0;  // the same meaning of pid
  int64_t pid = 0;

  static ProcessIdentity own();
  bool on_host_of(const ProcessIdentity& other) const;
};

class Liveness {
 public:
  Liveness() = default;
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;
  // Watches the process of `rank` if the kernel lets us; otherwise UCX's keepalive has to do.
  void watch(int rank, const ProcessIdentity& process);
  // To be polled for POLLIN by sleepers, who pass them back to see().
  const std::vector<pollfd>& entries() const { return entries_; }
  // Notes which processes have ended; `polled` are the entries of some moment ago.
  void see(const pollfd* polled, size_t count);
  // The same without sleeping.
  void look();
  // Whether the process of `rank` has been seen to end.
  bool has_ended(int rank) const;
  bool pending() const { return num_ended_ != num_taken_; }
  // Ranks whose process ended a grace period ago: what they had sent before has been taken by now. Each once.
  std::vector<int> take_ended();

 private:
  std::vector<pollfd> entries_;  // as watched_; fd -1 once ended
  struct Watched {
    int rank;
    int fd;
    bool ended, taken;
    Clock::time_point since;
  };
  std::vector<Watched> watched_;
  size_t num_ended_ = 0, num_taken_ = 0;
};

}  // namespace tenon::comm_ucx
