#include "run/rendezvous/key_store.h"

#include "run/rendezvous/rendezvous.h"

namespace tenon::run {

namespace {
constexpr size_t kMaxTotalBytes = size_t{256} << 20;

Error too_large(const std::string& what, size_t size, size_t limit) {
  return Error{
      "W027",
      what + " has " + std::to_string(size) + " bytes, at most " + std::to_string(limit) + " are allowed",
      "rendezvous", "exchange bulk data through the communication plugin", TENON_E_ARGUMENT};
}
}  // namespace

Status KeyStore::set(const std::string& key, std::string_view value) {
  if (key.empty()) return Error{"W027", "an empty key", "rendezvous", "", TENON_E_ARGUMENT};
  if (key.size() > kMaxKeyBytes) return too_large("a key", key.size(), kMaxKeyBytes);
  if (value.size() > kMaxValueBytes)
    return too_large("the value of '" + key + "'", value.size(), kMaxValueBytes);
  const auto found = values_.find(key);
  if (found != values_.end()) {
    if (found->second == value) return {};
    return Error{"W026", "key '" + key + "' is already set to another value", "rendezvous",
                 "a name is used once per job: number repeated exchanges", TENON_E_STATE};
  }
  if (total_bytes_ + key.size() + value.size() > kMaxTotalBytes) {
    return too_large("the table of keys", total_bytes_ + key.size() + value.size(), kMaxTotalBytes);
  }
  total_bytes_ += key.size() + value.size();
  values_.emplace(key, value);
  return {};
}

const std::string* KeyStore::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Error key_timeout(const std::string& key) {
  return Error{"W024", "key '" + key + "' was not set in time", "rendezvous",
               "look at the rank that should set it, or raise the timeout", TENON_E_TIMEOUT};
}

Error job_aborted(const std::string& reason) {
  return Error{"W025", "the job was aborted: " + reason, "rendezvous", "", TENON_E_ABORTED};
}

}  // namespace tenon::run
