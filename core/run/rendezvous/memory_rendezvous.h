// Rendezvous of virtual ranks: threads of one process share one object.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

#include "run/rendezvous/key_store.h"
#include "run/rendezvous/rendezvous.h"

namespace tenon::run {

class MemoryRendezvous final : public Rendezvous {
 public:
  Status set(const std::string& key, std::string_view value) override;
  Result<std::string> get(const std::string& key, int64_t timeout_ns) override;
  // Every get, waiting now or made later, fails with W025 and this reason. The first reason stays.
  // [thread-safe]
  void abort(const std::string& reason);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  KeyStore store_;
  std::optional<std::string> aborted_;
};

}  // namespace tenon::run
