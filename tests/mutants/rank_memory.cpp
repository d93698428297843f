#include "rank_memory.h"

#include <algorithm>

namespace tenon::mutants {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1}
                                << 26;   // of a space: the recipes of this suite need some thousands
constexpr unsigned char kPoison = 0xFF;  // of a double: NaN

}  // namespace

RankMemory::RankMemory(const SpaceBytes& bytes) {
  for (size_t i = 0; i < kNumSpaces; ++i) {
    require(bytes[i] <= kMostBytes, "no machine has so much memory");
    spaces_[i].resize(aligned(std::max<uint64_t>(bytes[i], 1)));
  }
}

char* RankMemory::at(const Program& program, BufferId buffer, uint64_t offset, uint64_t bytes) {
  require(buffer < program.buffers.size(), "an operand has no buffer");
  const Buffer& where = program.buffers[buffer];
  require(static_cast<size_t>(where.space) < kNumSpaces, "a buffer is in no space");
  std::vector<char>& space = spaces_[static_cast<size_t>(where.space)];
  const uint64_t size = space.size();
  const bool inside =
      where.offset <= size && offset <= size && bytes <= size && where.offset + offset + bytes <= size;
  require(inside, "an operand reaches beyond the memory");
  return space.data() + where.offset + offset;
}

char* RankMemory::at(const Program& program, const Operand& operand) {
  return at(program, operand.buffer, operand.offset, bytes_of(operand));
}

void RankMemory::poison_arena() {
  std::ranges::fill(spaces_[static_cast<size_t>(Space::arena)], static_cast<char>(kPoison));
}

uint64_t bytes_of(const Operand& operand) {
  int64_t elements = 1;
  for (int64_t size : operand.dims) {
    require(size >= 0 && size <= static_cast<int64_t>(kMostBytes), "a dim has no size");
    elements *= size;
    require(elements <= static_cast<int64_t>(kMostBytes), "an operand is larger than any memory");
  }
  return static_cast<uint64_t>(elements * size_of(operand.dtype));
}

}  // namespace tenon::mutants
