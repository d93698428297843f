// What travels besides the data: tags, cards and control messages. All ranks run the same build on the same
// kind of machine (little-endian), so structs travel as they are.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace tenon::comm_ucx {

// 63..48 the RECEIVER's id of the group | 47..32 the sender (member) | 31..8 operation number | 7..4 channel
// | 3..0 dtype, which is not matched but looked at after a receive.
enum class Channel : uint64_t {
  kCard = 0,     // who started what
  kScatter = 1,  // data of a first stage, or the only one
  kGather = 2,   // data of a second stage
  kPair = 3      // send and recv
};

inline constexpr uint16_t kControlGroup = 0xffff;
inline constexpr ucp_tag_t kMatchAll = ~ucp_tag_t{15};
inline constexpr ucp_tag_t kMatchGroup = ucp_tag_t{0xffff} << 48;
inline constexpr ucp_tag_t kControlTag = ucp_tag_t{kControlGroup} << 48;

inline ucp_tag_t make_tag(uint16_t group, int sender, uint64_t number, Channel channel, uint32_t dtype) {
  return ucp_tag_t{group} << 48 | (static_cast<ucp_tag_t>(sender) & 0xffff) << 32 | (number & 0xffffff) << 8 |
         static_cast<ucp_tag_t>(channel) << 4 | (dtype & 15);
}
inline uint32_t dtype_of(ucp_tag_t tag) { return static_cast<uint32_t>(tag & 15); }

// Every member of a collective gives one to its right neighbour: two members that disagree somewhere in the
// ring are noticed by some neighbours, who tell the others.
struct Card {
  uint64_t signature = 0;  // equal for operations that fit together
  char text[120] = {};     // describe(op), cut if long
};

// To a peer, outside any operation. The first failure of a group ends it for all members.
struct Control {
  enum Type : uint32_t { kGroupFailed = 1, kAborted = 2, kClosed = 3 };
  uint32_t type = 0;
  int32_t rank = 0;    // the sender
  int32_t code = 0;    // tenon_code, kGroupFailed only
  uint32_t group = 0;  // the receiver's id, kGroupFailed only
  char text[320] = {};
};

template <size_t N>
void put_text(char (&into)[N], const std::string& text) {
  const size_t size = text.size() < N ? text.size() : N - 1;
  std::memcpy(into, text.data(), size);
  into[size] = '\0';
}
template <size_t N>
std::string get_text(const char (&from)[N]) {
  return std::string(from, strnlen(from, N));
}

}  // namespace tenon::comm_ucx
