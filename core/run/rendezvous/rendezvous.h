// Small values that ranks exchange while they start: addresses, ids, hashes. A key is set once; a get waits
// for it. Implementations: MemoryRendezvous (virtual ranks), TcpRendezvous (processes and hosts).
//
// Error codes of this folder: W020 bad address, secret or rank; W021 socket trouble; W022 authentication
// failed; W023 the other side has gone; W024 a key did not come in time; W025 the job was aborted; W026 a key
// was set twice with different values; W027 a key or value beyond its limits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tenon/host.h"

namespace tenon::run {

inline constexpr size_t kMaxKeyBytes = 256;
inline constexpr size_t kMaxValueBytes = size_t{16} << 20;

// All functions are thread-safe.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // Publishes `value`, which is copied. Setting the same value again is fine, another one is W026.
  virtual Status set(const std::string& key, std::string_view value) = 0;
  // Waits until `key` is set; timeout_ns < 0 waits without limit, 0 only looks. W024 after the timeout,
  // W025 when the job was aborted, W023 when whoever holds the keys has gone.
  virtual Result<std::string> get(const std::string& key, int64_t timeout_ns) = 0;
};

// A view of `inner` in which every key begins with "<scope>/": one per communication domain, so that two
// domains of one job do not meet each other's keys. `inner` must outlive it.
class ScopedRendezvous final : public Rendezvous {
 public:
  ScopedRendezvous(Rendezvous& inner, const std::string& scope) : inner_(inner), prefix_(scope + "/") {}
  Status set(const std::string& key, std::string_view value) override {
    return inner_.set(prefix_ + key, value);
  }
  Result<std::string> get(const std::string& key, int64_t timeout_ns) override {
    return inner_.get(prefix_ + key, timeout_ns);
  }

 private:
  Rendezvous& inner_;
  std::string prefix_;
};

// Presents a Rendezvous as the C table that plugins see. `inner` must outlive the adapter, and the adapter
// whoever holds table().
class RendezvousTable {
 public:
  explicit RendezvousTable(Rendezvous& inner);
  RendezvousTable(const RendezvousTable&) = delete;
  RendezvousTable& operator=(const RendezvousTable&) = delete;
  const tenon_rendezvous* table() const { return &table_; }

 private:
  tenon_rendezvous table_;
};

// Every rank's bytes, in rank order. Collective: all `world` ranks call it with the same `name`, which is
// used once per rendezvous. 2 * world values travel. A timeout names the ranks that have not come.
Result<std::vector<std::string>> all_gather_bytes(Rendezvous& rendezvous, const std::string& name, int rank,
                                                  int world, std::string_view bytes, int64_t timeout_ns);

// Returns when all `world` ranks have called it with this `name` (used once per rendezvous).
Status barrier(Rendezvous& rendezvous, const std::string& name, int rank, int world, int64_t timeout_ns);

}  // namespace tenon::run
