// Memory that other processes of this host can load from and store to. UCX shares only what it allocated
// itself, so it allocates, and maps what its peers allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "endpoint.h"

namespace tenon::comm_ucx {

// Zeroed, aligned to a page. It leaves no trace in the system when the process is killed: UCX removes the
// name of a segment before anyone uses it.
class Block {
 public:
  Block(const Worker& worker, uint64_t bytes);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  // What a peer needs to map it.
  std::string ticket() const;
  // From here on nobody else reaches this memory: the same contents at the same address, in pages of this
  // process alone. False: no memory for that. No other thread may store to the block meanwhile.
  bool make_private();

 private:
  const Worker& worker_;
  const uint64_t bytes_;
  ucp_mem_h handle_ = nullptr;
  std::byte* data_ = nullptr;
  bool private_ = false;
};

// A peer's block in this process's address space.
class Mapping {
 public:
  // NULL: the peer's memory cannot be mapped (another host, or transports that share no memory).
  static std::unique_ptr<Mapping> make(const Peer& peer, const std::string& ticket);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  Mapping() = default;
  ucp_rkey_h key_ = nullptr;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// A place in some segment of a rank. The numbers of segments are the same everywhere: alloc is collective.
struct Spot {
  uint32_t segment = 0;
  uint64_t offset = 0;
};

// What `alloc` has given out, here and on the ranks whose memory this one reaches.
class Segments {
 public:
  struct Segment {
    std::unique_ptr<Block> block;
    std::map<int, std::unique_ptr<Mapping>> of_peers;  // by rank
  };
  void add(Segment segment) { segments_.push_back(std::move(segment)); }
  uint32_t next_number() const { return static_cast<uint32_t>(segments_.size()); }
  // False: not from here.
  bool remove(const void* pointer);
  // Where [pointer, pointer + bytes) lies; nothing: in none of them.
  std::optional<Spot> find(const void* pointer, uint64_t bytes) const;
  // That spot of `rank`, mapped here; NULL: it has been freed.
  std::byte* reach(int rank, const Spot& spot) const;
  // See Block. False: it could not be done for all of them.
  bool make_private();
  void clear() { segments_.clear(); }

 private:
  std::vector<Segment> segments_;  // by number; freed ones are empty
};

}  // namespace tenon::comm_ucx
