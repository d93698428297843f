#include "exchange.h"

#include <cstring>

#include "tenon_sdk/plugin.hpp"

namespace tenon::comm_ucx {

using sdk::Failure;

namespace {

struct Answer {
  tenon_code code;
  std::string text;  // the value, or the error's message
};

Answer get(const tenon_rendezvous& rendezvous, const std::string& key, size_t capacity, int64_t timeout_ns) {
  std::string value(capacity, '\0');
  uint64_t size = value.size();
  tenon_error error{};
  error.struct_size = sizeof error;
  const tenon_code code = rendezvous.get(&rendezvous, key.c_str(), value.data(), &size, timeout_ns, &error);
  if (code < 0) return {code, error.message};
  value.resize(size);
  return {TENON_OK, std::move(value)};
}

void set(const tenon_rendezvous& rendezvous, const std::string& key, const std::string& value) {
  tenon_error error{};
  error.struct_size = sizeof error;
  const tenon_code code = rendezvous.set(&rendezvous, key.c_str(), value.data(), value.size(), &error);
  if (code < 0) throw Failure(code, error.message);
}

std::string part_key(const std::string& name, size_t member) { return name + "/" + std::to_string(member); }

[[noreturn]] void time_out(const tenon_rendezvous& rendezvous, const std::string& name,
                           const std::vector<int>& ranks, int me, int64_t timeout_ns) {
  std::string missing;
  for (size_t m = 0; m < ranks.size(); ++m) {
    if (get(rendezvous, part_key(name, m), kMaxExchanged, 0).code < 0)
      missing += " " + std::to_string(ranks[m]);
  }
  throw Failure(TENON_E_TIMEOUT, "rank " + std::to_string(ranks[static_cast<size_t>(me)]) + " waited " +
                                     seconds_text(timeout_ns) + " for all members (" + name +
                                     "); not come: rank" + (missing.empty() ? "s unknown" : missing));
}

// The first member collects and publishes: 2n values travel instead of n * n.
std::string collect(const tenon_rendezvous& rendezvous, const std::string& name,
                    const std::vector<int>& ranks, int me, const Deadline& deadline, int64_t timeout_ns) {
  std::string joined;
  for (size_t m = 0; m < ranks.size(); ++m) {
    const Answer part = get(rendezvous, part_key(name, m), kMaxExchanged, remaining_ns(deadline));
    if (part.code == TENON_E_TIMEOUT) time_out(rendezvous, name, ranks, me, timeout_ns);
    if (part.code < 0) throw Failure(part.code, part.text);
    const auto size = static_cast<uint32_t>(part.text.size());
    joined.append(reinterpret_cast<const char*>(&size), sizeof size);
    joined += part.text;
  }
  set(rendezvous, name + "/all", joined);
  return joined;
}

}  // namespace

std::vector<std::string> exchange(const tenon_rendezvous& rendezvous, const std::string& name,
                                  const std::vector<int>& ranks, int me, const std::string& mine,
                                  const Deadline& deadline, int64_t timeout_ns) {
  if (mine.size() > kMaxExchanged)
    throw Failure(TENON_E_INTERNAL, name + ": more bytes than a member may give");
  set(rendezvous, part_key(name, static_cast<size_t>(me)), mine);
  std::string joined;
  if (me == 0) {
    joined = collect(rendezvous, name, ranks, me, deadline, timeout_ns);
  } else {
    const size_t capacity = ranks.size() * (kMaxExchanged + sizeof(uint32_t));
    Answer all = get(rendezvous, name + "/all", capacity, remaining_ns(deadline));
    if (all.code == TENON_E_TIMEOUT) time_out(rendezvous, name, ranks, me, timeout_ns);
    if (all.code < 0) throw Failure(all.code, all.text);
    joined = std::move(all.text);
  }
  std::vector<std::string> parts;
  for (size_t at = 0; at + sizeof(uint32_t) <= joined.size();) {
    uint32_t size = 0;
    std::memcpy(&size, joined.data() + at, sizeof size);
    at += sizeof size;
    if (size > joined.size() - at) break;
    parts.push_back(joined.substr(at, size));
    at += size;
  }
  if (parts.size() != ranks.size()) throw Failure(TENON_E_PEER, name + ": the members' list is malformed");
  return parts;
}

}  // namespace tenon::comm_ucx
