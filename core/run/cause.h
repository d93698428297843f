// Whose error matters. When one rank fails, the others fail too, because they wait for it: of all that the
// ranks then say, one error is told to the user, and this is the rule by which it is chosen.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/result.h"

namespace tenon {

// How an error relates to what went wrong; the smaller, the nearer.
enum class Witness : uint8_t {
  own,     // what this rank ran into, or how it died
  missed,  // a peer went away or did not come
  told,    // told to stop, because another rank had failed
};

inline Witness witness_of(const Error& error) {
  switch (error.kind) {
    case TENON_E_ABORTED: return Witness::told;
    case TENON_E_PEER:
    case TENON_E_TIMEOUT: return Witness::missed;
    default: return Witness::own;
  }
}

// The error that matters of those heard so far: the nearest to what went wrong. Of equally near ones the
// lowest rank's if they are its own, so that ranks that all fail alike are told alike each time; else the one
// heard first, for who misses a peer goes away, and is missed in turn.
class Cause {
 public:
  void hear(int64_t rank, Error error) {
    const Witness witness = witness_of(error);
    if (error_ && !nearer(rank, witness)) return;
    rank_ = rank;
    witness_ = witness;
    error_ = std::move(error);
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  bool nearer(int64_t rank, Witness witness) const {
    if (witness != witness_) return witness < witness_;
    return witness == Witness::own && rank < rank_;
  }

  std::optional<Error> error_;
  int64_t rank_ = 0;
  Witness witness_ = Witness::told;
};

}  // namespace tenon
