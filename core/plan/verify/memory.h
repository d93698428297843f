// What a rank's bytes hold, by address: whatever overlaps is known.
#pragma once

#include "plan/verify/checks.h"
#include "plan/verify/content.h"

namespace tenon {

class Memory {
 public:
  explicit Memory(Forms& forms) : forms_(forms) {}

  // A range in pieces, each relative to its start: what is there as a whole; what is not, unknown.
  using Pieces = std::vector<std::pair<ByteRange, Content>>;
  Pieces pieces(const ByteRange& range) const;
  // The one thing that a range holds: a value, equal parts of one that lie side by side, or one such part of
  // a larger one. Unknown if it is none of that.
  Content read(const ByteRange& range) const;

  void write(const ByteRange& range, const Content& content);
  void write(const ByteRange& range, const Pieces& pieces);

  uint64_t bytes_of(const Content& content) const;

 private:
  struct Cell {
    Content content;
    uint64_t start = 0;
  };
  std::vector<std::pair<ByteRange, Cell>> cells(const ByteRange& range) const;
  Content part(const Content& content, uint64_t offset, uint64_t bytes) const;
  Content joined(const Pieces& pieces) const;

  Forms& forms_;
  ByteMap<Cell> bytes_;
};

// Changes the pieces that are known. One that cannot be changed is unknown from then on, for between the
// leaves of a bucket lies what nobody means; if none can be, that is the error.
template <class Change>
Status change_each(Memory::Pieces& pieces, Change change) {
  std::optional<Error> wrong;
  bool any = false;
  for (auto& [piece, content] : pieces) {
    if (!content.known()) continue;
    Result<Content> made = change(piece, content);
    any |= made.ok();
    if (!made.ok() && !wrong) wrong = made.error();
    content = made.ok() ? std::move(made).value() : Content{};
  }
  if (!any && wrong) return *wrong;
  return {};
}

}  // namespace tenon
