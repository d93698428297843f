#include "plan/verify/memory.h"

namespace tenon {

uint64_t Memory::bytes_of(const Content& content) const {
  if (content.parts != nullptr) return content.parts->bytes;
  return content.form == kNone ? 0 : forms_.bytes(content.form);
}

// Neighbours that are of one write are one.
std::vector<std::pair<ByteRange, Memory::Cell>> Memory::cells(const ByteRange& range) const {
  std::vector<std::pair<ByteRange, Cell>> out;
  for (auto& [piece, cell] : bytes_.pieces(range)) {
    const bool goes_on = !out.empty() && cell.content.known() && out.back().second.start == cell.start &&
                         out.back().second.content == cell.content;
    if (goes_on)
      out.back().first.hi = piece.hi;
    else
      out.emplace_back(piece, std::move(cell));
  }
  return out;
}

Memory::Pieces Memory::pieces(const ByteRange& range) const {
  Pieces out;
  for (auto& [piece, cell] : cells(range)) {
    const bool whole = cell.start == piece.lo && bytes_of(cell.content) == piece.hi - piece.lo;
    const bool zeros = cell.content.form != kNone && cell.content.print == zeros_print();
    const Content there = whole   ? cell.content
                          : zeros ? part(cell.content, piece.lo - cell.start, piece.hi - piece.lo)
                                  : Content{};
    out.emplace_back(ByteRange{piece.lo - range.lo, piece.hi - range.lo}, there);
  }
  return out;
}

Content Memory::read(const ByteRange& range) const {
  const auto found = cells(range);
  if (found.empty() || !found[0].second.content.known()) return {};
  if (found.size() > 1) return joined(pieces(range));
  const auto& [piece, cell] = found[0];
  return part(cell.content, piece.lo - cell.start, piece.hi - piece.lo);
}

// The `index`th of `of` equal parts: of the first dim whose parts lie one behind the other, or of the bytes.
Content Memory::part(const Content& content, uint64_t offset, uint64_t bytes) const {
  const uint64_t all = bytes_of(content);
  if (offset == 0 && bytes == all) return content;
  if (content.form == kNone || bytes == 0) return {};
  Form form = forms_[content.form];
  const auto size = static_cast<uint64_t>(size_of(form.dtype));
  if (content.print == zeros_print() && offset % size == 0 && bytes % size == 0) {
    form.dims = {{static_cast<int64_t>(bytes / size), {}, 0, 1}};
    return {content.print, forms_.id(form), {}, nullptr, kOfAll};
  }
  if (all % bytes != 0 || offset % bytes != 0) return {};
  const auto index = static_cast<int64_t>(offset / bytes), of = static_cast<int64_t>(all / bytes);
  if (form.slab.of != 1 || !form.slab.axes.empty()) return {};
  const auto d = leading_dim(forms_, content.form);
  if (d && forms_.local(content.form)[*d] % of == 0) {
    DimForm& dim = form.dims[*d];
    dim.index = dim.index * of + index;
    dim.of *= of;
  } else if (bytes % size == 0) {
    form.slab = {{}, index, of};
  } else {
    return {};
  }
  Content out = content;
  out.form = forms_.id(form);
  return out;
}

Content Memory::joined(const Pieces& pieces) const {
  const auto n = static_cast<int64_t>(pieces.size());
  const Content& first = pieces[0].second;
  if (first.form == kNone) return {};
  Form whole = forms_[first.form];
  const auto of_dim = [n](const DimForm& dim) { return dim.of == n && dim.index == 0; };
  const auto dim = std::ranges::find_if(whole.dims, of_dim);
  const bool slab = whole.slab.of == n && whole.slab.index == 0;
  if (!slab && dim == whole.dims.end()) return {};
  const auto d = static_cast<size_t>(dim - whole.dims.begin());
  for (int64_t i = 0; i < n; ++i) {
    const Content& one = pieces[static_cast<size_t>(i)].second;
    if (one.form == kNone || one.print != first.print || one.blocks != first.blocks) return {};
    Form expected = forms_[first.form];
    (slab ? expected.slab.index : expected.dims[d].index) = i;
    if (!(forms_[one.form] == expected)) return {};
  }
  if (slab)
    whole.slab = {};
  else
    whole.dims[d] = {whole.dims[d].size, whole.dims[d].axes, 0, 1};
  Content out = first;
  out.form = forms_.id(whole);
  // Parts of a dim lie side by side as the whole does only if no dim before it has several elements.
  if (!slab && leading_dim(forms_, out.form) != d) return {};
  return out;
}

void Memory::write(const ByteRange& range, const Content& content) {
  bytes_.assign(range, Cell{content, range.lo});
}

void Memory::write(const ByteRange& range, const Pieces& pieces) {
  for (const auto& [piece, content] : pieces) {
    const ByteRange at{range.lo + piece.lo, range.lo + piece.hi};
    write(at, content);
  }
}

}  // namespace tenon
