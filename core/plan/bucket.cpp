#include "plan/bucket.h"

#include <algorithm>

namespace tenon {

std::vector<Bucket> plan_buckets(const std::vector<LeafShape>& leaves, const Mesh& mesh, uint64_t limit) {
  std::vector<Bucket> out;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const LeafShape& leaf = leaves[i];
    const uint64_t bytes = aligned(leaf.bytes);
    if (out.empty() || out.back().axes != leaf.axes || out.back().bytes + bytes > limit) {
      out.push_back({});
      out.back().axes = leaf.axes;
    }
    Bucket& bucket = out.back();
    bucket.leaves.push_back(i);
    bucket.offsets.push_back(bucket.bytes);
    bucket.bytes += bytes;
    bucket.last_op = std::max(bucket.last_op, leaf.producer);
  }
  for (Bucket& bucket : out) {
    const uint64_t step = kAlignment * static_cast<uint64_t>(mesh.size(bucket.axes));
    bucket.bytes = (bucket.bytes + step - 1) / step * step;
  }
  return out;
}

}  // namespace tenon
