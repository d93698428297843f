// The ranks of a run, as one of them sees them: what they tell one another beside the training itself.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "run/device.h"
#include "run/rendezvous/rendezvous.h"

namespace tenon {

class Peers {
 public:
  // `rendezvous` is borrowed; it may be NULL when the world is 1.
  Peers(RankId id, run::Rendezvous* rendezvous, int64_t timeout_ns)
      : id_(id), rendezvous_(rendezvous), timeout_ns_(timeout_ns) {}

  RankId id() const { return id_; }
  // Not NULL when the world is larger than 1.
  run::Rendezvous* rendezvous() const { return rendezvous_; }
  int64_t timeout_ns() const { return timeout_ns_; }

  // Collective, all of them: the ranks make the same calls in the same order.

  // Every rank's bytes, by rank. `what` is for messages.
  Result<std::vector<std::string>> exchange(const std::string& what, const std::string& mine);
  // Error W001 unless all ranks say the same.
  Status agree(const std::string& what, const std::string& mine);
  // The same within each class of ranks.
  Status agree(const std::string& what, const std::string& mine,
               const std::function<int64_t(int64_t rank)>& class_of);
  // What rank 0 finds out for all ranks. Where it fails it has the error, and the others `failed`.
  Result<std::string> from_rank_0(const std::string& what, const Error& failed,
                                  const std::function<Result<std::string>()>& work);

 private:
  RankId id_;
  run::Rendezvous* rendezvous_;
  int64_t timeout_ns_;
  int64_t exchanges_ = 0;  // so far: each has a name of its own
};

}  // namespace tenon
