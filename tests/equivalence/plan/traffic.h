// What the ranks of a combination send over each lane in each phase of a step: from the sizes on a rank
// alone, by what the strategies' pages say, with padding, positions, norms and scalars. It knows nothing of
// programs.
#pragma once

#include <map>

#include "combination.hpp"
#include "graph/graph.h"

namespace tenon::test {

// A model that ties nothing, "llama" (eight query heads) or "moe"; those of combination.hpp.
struct ModelSizes {
  int64_t layers = 3, hidden = 16, ffn = 24, head = 8, vocab = 256;
  int64_t batch = 8, context = 16;
  int64_t experts = 4, routed = 4, slots = 3;  // moe
  int64_t real = 8;                            // bytes of a number
  int64_t bucket_bytes = 8192;
};

class Traffic {
 public:
  // `klass`: coordinate on the pipeline's axis, whose schedule is 1f1b.
  Traffic(const Combination& c, const ModelSizes& sizes, int64_t klass);

  // Bytes that a rank sends in a step, with the usual algorithms: a ring, or all members' parts straight.
  // `lane`: an axis of the mesh, or "send>1", "recv<1".
  double bytes(const std::string& lane, Phase phase) const;
  std::vector<std::string> lanes() const;  // over which anything is sent

 private:
  using Axes = std::vector<std::string>;
  struct Param {
    int64_t elements = 1;  // on a rank
    Axes summed;           // over which its gradient is summed
    Axes cut;              // that cut it
    bool backward = true;  // an input's gradient needs it
    size_t bucket = 0;
  };
  struct Bucket {
    std::vector<Param> params;
    int64_t bytes = 0;  // of its parameters, each aligned
  };
  // Over which ZeRO cuts: the parameters over `near` alone.
  struct Zero {
    int64_t stage = 0;
    Axes near, far;
  };

  // "dp" is dp_out and dp_in where those are axes, "tp" too.
  Axes axes_of(const std::string& axis) const;
  int64_t size(const std::string& axis) const { return size(axes_of(axis)); }
  int64_t size(const Axes& axes) const;
  Axes in_order(const Axes& axes) const;  // of the mesh
  bool has(const std::string& word) const;
  Zero zero(const Axes& summed) const;  // of a parameter whose gradient is summed over these

  void add(const std::string& lane, Phase phase, double bytes) { sent_[{lane, phase}] += bytes; }
  // Collectives over several axes are on the lane of the first.
  void all_reduce(const Axes& axes, Phase phase, double bytes) { share(axes, phase, 2 * bytes); }
  // Of what all members have together: scattered, gathered, exchanged.
  void share(const Axes& axes, Phase phase, double bytes);

  void cut_over(Param& param, const std::string& axis) const;
  void place_params();
  void place(const std::vector<std::pair<std::string, int64_t>>& dims, bool backward = true);
  void fill_buckets();
  int64_t padded(const Bucket& bucket) const;  // elements
  // Elements of the largest of `parts` parts, each of which is `of` of what a bucket is cut into.
  int64_t largest_part(const Bucket& bucket, int64_t parts, int64_t of) const;
  std::vector<int64_t> gathers() const;  // of each bucket that rests in parts

  void between_stages();
  void of_tensor();
  void of_context();
  void of_experts();
  void of_gradients();
  void of_cut_gradient(const Bucket& bucket, const Zero& cut, int64_t gathers);
  void of_numbers();

  const Combination c_;
  const ModelSizes m_;
  const int64_t reps_;  // query heads of a key head
  const int64_t classes_, klass_;
  int64_t layers_ = 0;             // of this class
  int64_t tokens_ = 0;             // of a microbatch on a rank, as tensor parallelism sees them
  double stream_ = 0, slots_ = 0;  // bytes of these in the residual stream, and in all experts' slots
  std::vector<Param> params_;
  std::vector<Bucket> buckets_;
  std::map<std::pair<std::string, Phase>, double> sent_;
};

}  // namespace tenon::test
