#include "run/peers.h"

#include <fmt/format.h>

#include <map>

namespace tenon {

Result<std::vector<std::string>> Peers::exchange(const std::string& what, const std::string& mine) {
  if (id_.world == 1) return std::vector<std::string>{mine};
  const std::string name = fmt::format("{}/{}", what, exchanges_++);
  return run::all_gather_bytes(*rendezvous_, name, static_cast<int>(id_.rank), static_cast<int>(id_.world),
                               mine, timeout_ns_);
}

Status Peers::agree(const std::string& what, const std::string& mine) {
  return agree(what, mine, [](int64_t) { return int64_t{0}; });
}

Status Peers::agree(const std::string& what, const std::string& mine,
                    const std::function<int64_t(int64_t rank)>& class_of) {
  TENON_TRY(const auto all, exchange("agree/" + what, mine));
  std::map<int64_t, size_t> first;  // of each class
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const size_t other = first.try_emplace(class_of(static_cast<int64_t>(rank)), rank).first->second;
    if (all[rank] == all[other]) continue;
    return Error{"W001",
                 fmt::format("rank {} has another {} than rank {} ({} and {})", rank, what, other,
                             all[rank].substr(0, 12), all[other].substr(0, 12)),
                 "", "use the same recipe, data and plugins on all hosts", TENON_E_STATE};
  }
  return {};
}

Result<std::string> Peers::from_rank_0(const std::string& what, const Error& failed,
                                       const std::function<Result<std::string>()>& work) {
  Result<std::string> mine = std::string();
  if (id_.rank == 0) mine = work();
  TENON_TRY(const auto all, exchange(what, mine.ok() ? *mine : std::string()));
  if (!mine.ok()) return mine;
  if (all[0].empty()) return failed;
  return all[0];
}

}  // namespace tenon
