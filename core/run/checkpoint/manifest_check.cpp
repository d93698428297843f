// Rules of a sound manifest that span entries: names, and coverage of each tensor by its parts.
#include <algorithm>
#include <map>
#include <string_view>

#include "run/checkpoint/errors.h"
#include "run/checkpoint/manifest.h"

namespace tenon::checkpoint {
namespace {

constexpr size_t kMaxNameBytes = 512;
// Boxes are compared in pairs; this bounds the work that a hostile manifest can ask for.
constexpr size_t kMaxBoxes = 4096;

using RangesByBox = std::map<Box, std::vector<Range>>;

Error not_covered(const std::string& name, std::string cause, const std::string& file) {
  return Error{kNotCovered, std::move(cause), file + ": tensor '" + name + "'",
               "every element must be saved by exactly one rank", TENON_E_CHECKPOINT};
}

// The flat ranges of one box must tile it.
Status check_tiling(const std::string& name, const Box& box, std::vector<Range> ranges,
                    const std::string& file) {
  std::sort(ranges.begin(), ranges.end());
  const auto elements = [&](int64_t from, int64_t to) {
    return "elements " + std::to_string(from) + " to " + std::to_string(to - 1) + " of box " + to_text(box);
  };
  int64_t next = 0;
  for (const Range& range : ranges) {
    if (range.start > next) return not_covered(name, elements(next, range.start) + " are not saved", file);
    if (range.start < next) {
      const int64_t end = std::min(next, range.start + range.size);
      return not_covered(name, elements(range.start, end) + " are saved twice", file);
    }
    next = range.start + range.size;
  }
  const int64_t total = num_elements(box);
  if (next < total) return not_covered(name, elements(next, total) + " are not saved", file);
  return {};
}

Status check_disjoint(const std::string& name, const RangesByBox& boxes, const std::string& file) {
  for (auto one = boxes.begin(); one != boxes.end(); ++one) {
    for (auto other = std::next(one); other != boxes.end(); ++other) {
      // Sorted by the start of dim 0: none of the later boxes can reach back.
      if (!one->first.empty() && other->first[0].start >= one->first[0].start + one->first[0].size) break;
      if (!intersect(one->first, other->first)) continue;
      return not_covered(name, "boxes " + to_text(one->first) + " and " + to_text(other->first) + " overlap",
                         file);
    }
  }
  return {};
}

bool is_name_character(char c) {
  return c > ' ' && c <= '~' && std::string_view("\"'\\[]{}`").find(c) == std::string_view::npos;
}

}  // namespace

Status check_coverage(const std::string& name, const Tensor& tensor, const std::string& file) {
  RangesByBox boxes;
  for (const Part& part : tensor.parts) boxes[part.box].push_back(part.slice().flat);
  if (boxes.size() > kMaxBoxes) return not_covered(name, "is cut into more than 4096 boxes", file);
  for (const auto& [box, ranges] : boxes) TENON_CHECK(check_tiling(name, box, ranges, file));
  TENON_CHECK(check_disjoint(name, boxes, file));
  int64_t covered = 0;
  for (const auto& [box, ranges] : boxes) covered += num_elements(box);
  if (covered == tensor.elements()) return {};
  return not_covered(
      name, std::to_string(covered) + " of " + std::to_string(tensor.elements()) + " elements are saved",
      file);
}

bool is_token(const std::string& text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= 64 && text != "." && text != ".." &&
         std::all_of(text.begin(), text.end(), allowed);
}

Status check_id(const SaveId& id) {
  if (!is_token(id.run_id)) {
    return bad_argument("run id '" + id.run_id.substr(0, 80) + "': must be 1 to 64 of A-Z a-z 0-9 . _ -", "");
  }
  if (id.step < 0) return bad_argument("step " + std::to_string(id.step) + ": must not be negative", "");
  return {};
}

Status check_tensor_name(const std::string& name) {
  const std::string shown = "tensor name '" + name.substr(0, 80) + "': ";
  if (name.empty() || name.size() > kMaxNameBytes)
    return bad_argument(shown + "must have 1 to 512 bytes", "");
  if (!std::all_of(name.begin(), name.end(), is_name_character)) {
    return bad_argument(shown + "must be printable ASCII without spaces, quotes, brackets and braces", "");
  }
  if (name == "__metadata__") return bad_argument(shown + "is reserved", "");
  const std::string framed = "/" + name + "/";
  for (const char* segment : {"//", "/./", "/../"}) {
    if (framed.find(segment) == std::string::npos) continue;
    return bad_argument(shown + "looks like a path: '' '.' '..' between slashes are refused", "");
  }
  return {};
}

}  // namespace tenon::checkpoint
