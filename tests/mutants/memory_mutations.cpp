// Buffers and spaces.
#include <fmt/format.h>

#include "mutation.h"

namespace tenon::mutants {
namespace {
namespace of_memory {

using Programs = std::vector<Program>;

template <class Ways, class Change>
Sites at_buffers(const Programs& programs, size_t which, Ways ways, Change change) {
  return at_each(programs[which], &Program::buffers, ways,
                 [change](Program& program, Buffer& buffer, size_t way) {
                   const std::string name = buffer.name, what = change(program, buffer, way);
                   return what.empty() ? what : "buffer '" + name + "' " + what;
                 });
}

Sites names(const Programs& programs, size_t which) {
  return at_buffers(
      programs, which, [](const Buffer&) { return size_t{1}; },
      [](Program&, Buffer& buffer, size_t) {
        buffer.name = buffer.name + ".other";
        return std::string("has another name");
      });
}

Sites spaces(const Programs& programs, size_t which) {
  return at_buffers(
      programs, which, [](const Buffer&) { return kNumSpaces; },
      [](Program&, Buffer& buffer, size_t way) -> std::string {
        if (buffer.space == static_cast<Space>(way)) return "";
        buffer.space = static_cast<Space>(way);
        return std::string("is in space ") + name_of(buffer.space);
      });
}

constexpr int64_t kSizes[] = {8, -8, 64, -64, 1, 1 << 20, INT64_MIN};

Sites sizes(const Programs& programs, size_t which) {
  return at_buffers(
      programs, which, [](const Buffer&) { return std::size(kSizes); },
      [](Program&, Buffer& buffer, size_t way) {
        buffer.bytes += static_cast<uint64_t>(kSizes[way]);
        return fmt::format("has {} bytes more", kSizes[way]);
      });
}

Sites offsets(const Programs& programs, size_t which) {
  return at_buffers(
      programs, which, [](const Buffer&) { return std::size(kSizes); },
      [](Program&, Buffer& buffer, size_t way) {
        buffer.offset += static_cast<uint64_t>(kSizes[way]);
        return fmt::format("is {} bytes further", kSizes[way]);
      });
}

// Where another one of the space is; and the two in each other's places.
Sites other_offsets(const Programs& programs, size_t which) {
  const size_t n = programs[which].buffers.size();
  return at_buffers(
      programs, which, [n](const Buffer&) { return 2 * n; },
      [](Program& program, Buffer& buffer, size_t way) -> std::string {
        Buffer& other = program.buffers[way / 2];
        if (other.space != buffer.space || other.offset == buffer.offset) return "";
        if (way % 2 == 0)
          buffer.offset = other.offset;
        else
          std::swap(buffer.offset, other.offset);
        return fmt::format("{} '{}'", way % 2 == 0 ? "is where is" : "exchanges places with", other.name);
      });
}

Sites gaps(const Programs& programs, size_t which) {
  return at_buffers(
      programs, which, [](const Buffer&) { return size_t{1}; },
      [](Program&, Buffer& buffer, size_t) {
        buffer.gaps = !buffer.gaps;
        return std::string(buffer.gaps ? "has gaps" : "has no gaps");
      });
}

Sites listed(const Programs& programs, size_t which) {
  return once(list_ways(programs[which].buffers),
              [](Program& program, size_t way) { return change_list(program.buffers, way); });
}

Sites space_bytes(const Programs&, size_t) {
  return once(kNumSpaces * std::size(kSizes), [](Program& program, size_t way) {
    const size_t space = way / std::size(kSizes);
    program.space_bytes[space] += static_cast<uint64_t>(kSizes[way % std::size(kSizes)]);
    return fmt::format("space {} has {} bytes", name_of(static_cast<Space>(space)),
                       program.space_bytes[space]);
  });
}

constexpr Mutation kMutations[] = {
    {"Program.buffers", "left out, repeated, exchanged", listed},
    {"Buffer.name", "another", names},
    {"Buffer.space", "another", spaces},
    {"Buffer.bytes", "another", sizes},
    {"Buffer.offset", "moved", offsets},
    {"Buffer.offset", "another's", other_offsets},
    {"Buffer.gaps", "flipped", gaps},
    {"Program.space_bytes", "others", space_bytes},
};

}  // namespace of_memory
}  // namespace

std::span<const Mutation> memory_mutations() { return of_memory::kMutations; }

}  // namespace tenon::mutants
