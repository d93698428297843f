// The parts that do not depend on how keys travel: the C table, all-gather, barrier.
#include "run/rendezvous/rendezvous.h"

#include <cstring>
#include <exception>

#include "run/rendezvous/deadline.h"

namespace tenon::run {

namespace {

Rendezvous& inner_of(const tenon_rendezvous* self) { return *static_cast<Rendezvous*>(self->ctx); }

Error bad_call(const std::string& cause) { return Error{"W020", cause, "rendezvous", "", TENON_E_ARGUMENT}; }

// Exceptions (out of memory) must not cross the C ABI.
template <class Body>
tenon_code at_border(tenon_error* error, Body&& body) {
  try {
    Status status = body();
    return status.ok() ? TENON_OK : to_abi(status.error(), error);
  } catch (const std::exception& e) {
    return to_abi(Error{"W020", e.what(), "rendezvous", "", TENON_E_MEMORY}, error);
  }
}

tenon_code table_set(const tenon_rendezvous* self, const char* key, const void* value, uint64_t size,
                     tenon_error* error) {
  return at_border(error, [&]() -> Status {
    if (self == nullptr) return bad_call("set: the table is NULL");
    if (key == nullptr || (value == nullptr && size > 0)) return bad_call("set: key or value is NULL");
    return inner_of(self).set(key, {static_cast<const char*>(value), size});
  });
}

tenon_code table_get(const tenon_rendezvous* self, const char* key, void* value, uint64_t* size,
                     int64_t timeout_ns, tenon_error* error) {
  return at_border(error, [&]() -> Status {
    if (self == nullptr) return bad_call("get: the table is NULL");
    if (key == nullptr || size == nullptr) return bad_call("get: key or size is NULL");
    if (value == nullptr && *size > 0) return bad_call("get: value is NULL but its capacity is not 0");
    TENON_TRY(const std::string found, inner_of(self).get(key, timeout_ns));
    if (found.size() > *size) {
      return bad_call("the value of '" + std::string(key) + "' has " + std::to_string(found.size()) +
                      " bytes, the buffer " + std::to_string(*size));
    }
    if (!found.empty()) std::memcpy(value, found.data(), found.size());
    *size = found.size();
    return {};
  });
}

// Parts as u32 length and bytes, one after the other.
std::string join(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) {
    const auto size = static_cast<uint32_t>(part.size());
    out.append(reinterpret_cast<const char*>(&size), sizeof size);
    out += part;
  }
  return out;
}

Result<std::vector<std::string>> split(std::string_view joined, int world, const std::string& name) {
  std::vector<std::string> parts;
  while (!joined.empty()) {
    uint32_t size = 0;
    if (joined.size() < sizeof size) break;
    std::memcpy(&size, joined.data(), sizeof size);
    joined.remove_prefix(sizeof size);
    if (size > joined.size()) break;
    parts.emplace_back(joined.substr(0, size));
    joined.remove_prefix(size);
  }
  if (!joined.empty() || parts.size() != static_cast<size_t>(world)) {
    return Error{"W027",
                 "rank 0 published a malformed list of " + std::to_string(parts.size()) + " parts, " +
                     std::to_string(world) + " expected",
                 name, "do all ranks run the same version?", TENON_E_INTERNAL};
  }
  return parts;
}

std::string part_key(const std::string& name, int rank) { return name + "/" + std::to_string(rank); }

// After a timeout: which ranks have not set their part.
Error name_the_missing(Rendezvous& rendezvous, const std::string& name, int world, Error timeout) {
  constexpr int kMostNamed = 16;
  std::string missing;
  int num_missing = 0;
  for (int rank = 0; rank < world; ++rank) {
    const Result<std::string> part = rendezvous.get(part_key(name, rank), 0);
    if (part.ok()) continue;
    if (part.error().kind != TENON_E_TIMEOUT) return part.error();
    if (++num_missing <= kMostNamed) missing += " " + std::to_string(rank);
  }
  if (num_missing > kMostNamed) missing += " and " + std::to_string(num_missing - kMostNamed) + " more";
  if (num_missing == 0) missing = " none; rank 0 has not collected them";
  timeout.cause =
      "waiting for all " + std::to_string(world) + " ranks timed out; ranks that have not come:" + missing;
  timeout.place = name;
  timeout.fix = "look at the missing ranks' output, or raise the timeout";
  return timeout;
}

Result<std::vector<std::string>> collect(Rendezvous& rendezvous, const std::string& name, int world,
                                         const Deadline& deadline) {
  std::vector<std::string> parts;
  for (int rank = 0; rank < world; ++rank) {
    TENON_TRY(std::string part, rendezvous.get(part_key(name, rank), deadline.remaining_ns()));
    parts.push_back(std::move(part));
  }
  TENON_CHECK(rendezvous.set(name + "/all", join(parts)));
  return parts;
}

}  // namespace

RendezvousTable::RendezvousTable(Rendezvous& inner)
    : table_{sizeof(tenon_rendezvous), 0, &inner, table_set, table_get} {}

Result<std::vector<std::string>> all_gather_bytes(Rendezvous& rendezvous, const std::string& name, int rank,
                                                  int world, std::string_view bytes, int64_t timeout_ns) {
  if (world < 1 || rank < 0 || rank >= world) {
    return bad_call("all_gather '" + name + "': rank " + std::to_string(rank) + " of world " +
                    std::to_string(world));
  }
  const Deadline deadline(timeout_ns);
  TENON_CHECK(rendezvous.set(part_key(name, rank), bytes));
  if (rank == 0) {
    auto parts = collect(rendezvous, name, world, deadline);
    if (parts.ok() || parts.error().kind != TENON_E_TIMEOUT) return parts;
    return name_the_missing(rendezvous, name, world, parts.error());
  }
  const Result<std::string> all = rendezvous.get(name + "/all", deadline.remaining_ns());
  if (all.ok()) return split(all.value(), world, name);
  if (all.error().kind != TENON_E_TIMEOUT) return all.error();
  return name_the_missing(rendezvous, name, world, all.error());
}

Status barrier(Rendezvous& rendezvous, const std::string& name, int rank, int world, int64_t timeout_ns) {
  TENON_CHECK(all_gather_bytes(rendezvous, name, rank, world, "", timeout_ns));
  return {};
}

}  // namespace tenon::run
