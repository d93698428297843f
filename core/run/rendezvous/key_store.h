// The set-once table behind both kinds of rendezvous. Not synchronised.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tenon::run {

class KeyStore {
 public:
  // W026: set before with another value. W027: beyond the limits of rendezvous.h or 256 MiB in all.
  Status set(const std::string& key, std::string_view value);
  // NULL: not set. Valid until the store is destroyed.
  const std::string* find(const std::string& key) const;

 private:
  std::map<std::string, std::string> values_;
  size_t total_bytes_ = 0;
};

Error key_timeout(const std::string& key);
Error job_aborted(const std::string& reason);

}  // namespace tenon::run
