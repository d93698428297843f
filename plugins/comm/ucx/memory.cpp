#include "memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

namespace tenon::comm_ucx {

using sdk::Failure;

namespace {

struct TicketHead {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

}  // namespace

Block::Block(const Worker& worker, uint64_t bytes) : worker_(worker), bytes_(bytes) {
  ucp_mem_map_params_t params{};
  params.field_mask =
      UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.length = bytes;
  params.flags = UCP_MEM_MAP_ALLOCATE;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  ucs_status_t status = ucp_mem_map(worker.context(), &params, &handle_);
  if (status != UCS_OK)
    throw ucx_failure(TENON_E_MEMORY, "cannot allocate " + std::to_string(bytes) + " bytes", status);
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
  status = ucp_mem_query(handle_, &attributes);
  if (status != UCS_OK) {
    ucp_mem_unmap(worker.context(), handle_);
    throw ucx_failure(TENON_E_MEMORY, "asking for the address of shared memory", status);
  }
  data_ = static_cast<std::byte*>(attributes.address);
  madvise(data_, bytes, MADV_HUGEPAGE);  // only advice
  std::memset(data_, 0, bytes);          // page faults now, not in the step
}

Block::~Block() {
  if (private_) {
    munmap(data_, bytes_);  // and UCX keeps its record of what is gone: it would detach a segment here
  } else {
    ucp_mem_unmap(worker_.context(), handle_);
  }
}

std::string Block::ticket() const {
  const TicketHead head{reinterpret_cast<uint64_t>(data_), bytes_};
  std::string out(reinterpret_cast<const char*>(&head), sizeof head);
  void* key = nullptr;
  size_t size = 0;
  const ucs_status_t status = ucp_rkey_pack(worker_.context(), handle_, &key, &size);
  if (status != UCS_OK) throw ucx_failure(TENON_E_IO, "packing the key of shared memory", status);
  out.append(static_cast<const char*>(key), size);
  ucp_rkey_buffer_release(key);
  return out;
}

bool Block::make_private() {
  if (private_) return true;
  void* copy = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return false;
  std::memcpy(copy, data_, bytes_);
  // UCX replaces libc's mremap by one that loses the last argument.
  if (syscall(SYS_mremap, copy, bytes_, bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, data_) == -1) {
    munmap(copy, bytes_);
    return false;
  }
  private_ = true;
  return true;
}

std::unique_ptr<Mapping> Mapping::make(const Peer& peer, const std::string& ticket) {
  TicketHead head;
  if (ticket.size() <= sizeof head) return nullptr;
  std::memcpy(&head, ticket.data(), sizeof head);
  std::unique_ptr<Mapping> out(new Mapping);
  if (ucp_ep_rkey_unpack(peer.get(), ticket.data() + sizeof head, &out->key_) != UCS_OK) {
    out->key_ = nullptr;
    return nullptr;
  }
  void* local = nullptr;
  if (ucp_rkey_ptr(out->key_, head.address, &local) != UCS_OK) return nullptr;
  out->data_ = static_cast<std::byte*>(local);
  out->bytes_ = head.bytes;
  return out;
}

Mapping::~Mapping() {
  if (key_ != nullptr) ucp_rkey_destroy(key_);
}

bool Segments::remove(const void* pointer) {
  for (Segment& segment : segments_) {
    if (segment.block == nullptr || segment.block->data() != pointer) continue;
    segment = {};
    return true;
  }
  return false;
}

std::optional<Spot> Segments::find(const void* pointer, uint64_t bytes) const {
  const auto* at = static_cast<const std::byte*>(pointer);
  for (uint32_t number = 0; number < segments_.size(); ++number) {
    const Block* block = segments_[number].block.get();
    if (block == nullptr || at < block->data() || at >= block->data() + block->bytes()) continue;
    const auto offset = static_cast<uint64_t>(at - block->data());
    if (bytes > block->bytes() - offset) return std::nullopt;
    return Spot{number, offset};
  }
  return std::nullopt;
}

std::byte* Segments::reach(int rank, const Spot& spot) const {
  if (spot.segment >= segments_.size()) return nullptr;
  const auto found = segments_[spot.segment].of_peers.find(rank);
  if (found == segments_[spot.segment].of_peers.end()) return nullptr;
  return spot.offset < found->second->bytes() ? found->second->data() + spot.offset : nullptr;
}

bool Segments::make_private() {
  bool all = true;
  for (const Segment& segment : segments_) {
    if (segment.block != nullptr) all = segment.block->make_private() && all;
  }
  return all;
}

}  // namespace tenon::comm_ucx
