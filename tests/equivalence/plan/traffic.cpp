#include "traffic.h"

#include <algorithm>
#include <sstream>

namespace tenon::test {
namespace {

constexpr int64_t kAligned = 64;  // bytes: where a parameter begins
constexpr int64_t kGranule = 16;  // elements: where a parameter may be cut

int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// With the axis of tensor parallelism in two parts where it has more ranks than there are key heads.
Combination split(Combination c) {
  const auto tp = std::ranges::find(c.mesh, "tp", &std::pair<std::string, int>::first);
  if (tp == c.mesh.end() || c.groups == 1 || c.groups % tp->second == 0) return c;
  const int shared = tp->second / c.groups;
  *tp = {"tp_out", c.groups};
  c.mesh.insert(tp + 1, {"tp_in", shared});
  return c;
}

}  // namespace

Traffic::Traffic(const Combination& c, const ModelSizes& sizes, int64_t klass)
    : c_(split(c)),
      m_(sizes),
      reps_((c.model == "llama" ? 8 : 4) / c.groups),
      classes_(size("pp")),
      klass_(klass) {
  layers_ = m_.layers / classes_ + (klass < m_.layers % classes_ ? 1 : 0);
  tokens_ = m_.batch / c.microbatches / size("dp") * (m_.context / size("cp"));
  stream_ = static_cast<double>(tokens_ * m_.hidden * m_.real);
  slots_ = static_cast<double>(tokens_ / m_.routed * m_.experts * m_.slots * m_.hidden * m_.real);
  place_params();
  fill_buckets();
  between_stages();
  of_tensor();
  of_context();
  of_experts();
  of_gradients();
  of_numbers();
}

double Traffic::bytes(const std::string& lane, Phase phase) const {
  const auto it = sent_.find({lane, phase});
  return it == sent_.end() ? 0 : it->second;
}

std::vector<std::string> Traffic::lanes() const {
  std::vector<std::string> out;
  for (const auto& [where, bytes] : sent_) {
    if (bytes > 0 && std::ranges::count(out, where.first) == 0) out.push_back(where.first);
  }
  return out;
}

Traffic::Axes Traffic::axes_of(const std::string& axis) const {
  Axes out;
  for (const auto& [name, size] : c_.mesh) {
    if (name == axis || name.starts_with(axis + "_")) out.push_back(name);
  }
  return out;
}

int64_t Traffic::size(const Axes& axes) const {
  int64_t n = 1;
  for (const auto& [name, size] : c_.mesh) n *= std::ranges::count(axes, name) > 0 ? size : 1;
  return n;
}

Traffic::Axes Traffic::in_order(const Axes& axes) const {
  Axes out;
  for (const auto& [name, size] : c_.mesh) {
    if (std::ranges::count(axes, name) > 0) out.push_back(name);
  }
  return out;
}

bool Traffic::has(const std::string& word) const {
  std::stringstream words(c_.strategies);
  for (std::string one; words >> one;) {
    if (one == word) return true;
  }
  return false;
}

Traffic::Zero Traffic::zero(const Axes& summed) const {
  std::stringstream words(c_.strategies);
  for (std::string word; words >> word;) {  // "zero2", "zero3:dp/dp_in"
    if (!word.starts_with("zero")) continue;
    const std::string axes = word.size() > 5 ? word.substr(6) : "dp";
    const Axes within = axes_of(axes.substr(axes.find('/') + 1));
    Zero out{word[4] - '0', {}, {}};
    for (const std::string& axis : axes_of(axes.substr(0, axes.find('/')))) {
      if (std::ranges::count(summed, axis) == 0) continue;
      (out.stage == 3 && std::ranges::count(within, axis) > 0 ? out.near : out.far).push_back(axis);
    }
    return out;
  }
  return {};
}

void Traffic::share(const Axes& axes, Phase phase, double bytes) {
  if (axes.empty()) return;
  const auto n = static_cast<double>(size(axes));
  add(in_order(axes).front(), phase, (n - 1) / n * bytes);
}

void Traffic::cut_over(Param& param, const std::string& axis) const {
  for (const std::string& one : axes_of(axis)) param.cut.push_back(one);
  param.elements /= size(axis);
}

// -- parameters -------------------------------------------------------------------------------------

void Traffic::place(const std::vector<std::pair<std::string, int64_t>>& dims, bool backward) {
  Param param;
  param.backward = backward;
  const bool of_expert = dims[0].first == "expert" && dims.size() == 3;
  bool whole = true;                                // over tp
  const bool shared = c_.groups % size("tp") != 0;  // several ranks hold a key head
  const std::string inner = c_.groups == 1 ? "tp" : "tp_in";
  Axes summed = axes_of("dp");
  summed.emplace_back("cp");
  for (const auto& [dim, size_of_dim] : dims) {
    param.elements *= size_of_dim;
    const bool groups = dim == "group", named = groups || dim == "ffn" || dim == "vocab";
    if (named && whole) cut_over(param, groups && shared ? "tp_out" : "tp");
    if (dim == "rep" && shared) cut_over(param, inner);
    whole &= !named;
  }
  const bool of_keys = dims[0].first == "group" && dims[1].first != "rep";
  if (of_keys && shared) summed.push_back(inner);  // each rank has its own query heads' part
  if (of_expert && has("expert")) {
    cut_over(param, "dp");
    summed = {"cp"};
  }
  if (whole && has("sequence"))  // each rank has seen a part of the sequence
    for (const std::string& axis : axes_of("tp")) summed.push_back(axis);
  param.summed = in_order(summed);
  param.cut = in_order(param.cut);
  params_.push_back(param);
}

// In the order in which their gradients are complete: backwards.
void Traffic::place_params() {
  const int64_t h = m_.hidden, g = c_.groups, r = reps_, d = m_.head, f = m_.ffn, e = m_.experts;
  if (klass_ == 0) place({{"vocab", m_.vocab}, {"hidden", h}}, false);
  for (int64_t i = 0; i < layers_; ++i) {
    place({{"hidden", h}});
    place({{"group", g}, {"rep", r}, {"head", d}, {"hidden", h}});
    place({{"group", g}, {"head", d}, {"hidden", h}});
    place({{"group", g}, {"head", d}, {"hidden", h}});
    place({{"hidden", h}, {"group", g}, {"rep", r}, {"head", d}});
    place({{"hidden", h}});
    if (c_.model == "moe") {
      place({{"expert", e}, {"hidden", h}});
      place({{"expert", e}, {"ffn", f}, {"hidden", h}});
      place({{"expert", e}, {"ffn", f}, {"hidden", h}});
      place({{"expert", e}, {"hidden", h}, {"ffn", f}});
    } else {
      place({{"ffn", f}, {"hidden", h}});
      place({{"ffn", f}, {"hidden", h}});
      place({{"hidden", h}, {"ffn", f}});
    }
  }
  if (klass_ + 1 == classes_) {
    place({{"hidden", h}});
    place({{"vocab", m_.vocab}, {"hidden", h}});
  }
  std::ranges::reverse(params_);
}

// Parameters that are summed and cut alike, one behind the other until a bucket is full.
void Traffic::fill_buckets() {
  std::map<std::pair<Axes, Axes>, size_t> open;
  for (Param& param : params_) {
    const int64_t bytes = up(param.elements * m_.real, kAligned);
    const auto [at, fresh] = open.try_emplace({param.summed, param.cut}, buckets_.size());
    if (!fresh && buckets_[at->second].bytes + bytes > m_.bucket_bytes) at->second = buckets_.size();
    if (at->second == buckets_.size()) buckets_.emplace_back();
    param.bucket = at->second;
    Bucket& bucket = buckets_[at->second];
    bucket.params.push_back(param);
    bucket.bytes += bytes;
  }
}

int64_t Traffic::padded(const Bucket& bucket) const { return up(bucket.bytes / m_.real, kGranule); }

int64_t Traffic::largest_part(const Bucket& bucket, int64_t parts, int64_t of) const {
  const int64_t n = parts * of, all = padded(bucket);
  int64_t largest = 0, before = 0;
  for (int64_t member = of; member <= n; member += of) {
    int64_t cut = all * member / n, first = 0;
    for (const Param& param : bucket.params) {  // at a granule, or where the next one begins
      const int64_t inside = (cut - first + kGranule / 2) / kGranule * kGranule;
      const bool last = &param == &bucket.params.back();
      const int64_t next = last ? all : first + up(param.elements * m_.real, kAligned) / m_.real;
      if (first <= cut && cut < next) cut = inside < param.elements ? first + inside : next;
      first = next;
    }
    largest = std::max(largest, cut - before);
    before = cut;
  }
  return largest;
}

// -- activations ------------------------------------------------------------------------------------

// Forward the stream, backward its gradient; replicated values cross whole.
void Traffic::between_stages() {
  const double bytes = stream_ / static_cast<double>(has("sequence") ? size("tp") : 1) * c_.microbatches;
  if (klass_ + 1 < classes_) add("send>" + std::to_string(klass_ + 1), Phase::forward, bytes);
  if (klass_ > 0) add("send>" + std::to_string(klass_ - 1), Phase::input_grad, bytes);
  const double losses = static_cast<double>(layers_) * 8 * c_.microbatches;  // of routers
  if (c_.model == "moe" && klass_ + 1 < classes_)
    add("send>" + std::to_string(classes_ - 1), Phase::forward, losses);
}

// Two regions a layer are summed forward and backward, and embedding and head once. Of experts it is their
// slots that are summed, but for what they add to the stream. Between stages the stream is a partial sum,
// which the next stage sums, unless it is cut along the sequence.
void Traffic::of_tensor() {
  if (size("tp") == 1) return;
  const bool sequence = has("sequence"), first = klass_ == 0, last = klass_ + 1 == classes_;
  const double m = c_.microbatches, layers = static_cast<double>(layers_);
  const double whole = m * stream_, once = sequence ? whole : 2 * whole;
  all_reduce(axes_of("tp"), Phase::forward, layers * whole);
  all_reduce(axes_of("tp"), Phase::input_grad, layers * whole);
  if (c_.model != "moe") {
    all_reduce(axes_of("tp"), Phase::forward, layers * whole);
    all_reduce(axes_of("tp"), Phase::input_grad, layers * whole);
  } else if (sequence) {
    all_reduce(axes_of("tp"), Phase::forward, layers * m * (slots_ + 8));  // and a router's loss
    all_reduce(axes_of("tp"), Phase::input_grad, layers * m * slots_);
  } else {  // backward wants whole what experts made forward
    all_reduce(axes_of("tp"), Phase::forward, layers * whole);
    all_reduce(axes_of("tp"), Phase::input_grad, 2 * layers * m * slots_);
  }
  if (!sequence) all_reduce(axes_of("tp"), Phase::forward, ((first ? 0 : 1) - (last ? 0 : 1)) * whole);
  if (first) share(axes_of("tp"), Phase::forward, once);
  if (first && sequence) share(axes_of("tp"), Phase::weight_grad, whole);
  if (!last) return;
  if (sequence) share(axes_of("tp"), Phase::forward, whole);
  share(axes_of("tp"), Phase::input_grad, once);
  const double number = m * static_cast<double>(tokens_ * m_.real);  // one for each token
  share(axes_of("tp"), Phase::forward, static_cast<double>(size("tp")) * number);
  all_reduce(axes_of("tp"), Phase::forward, number);
}

void Traffic::of_context() {
  const auto n = static_cast<double>(size("cp"));
  if (n == 1) return;
  const double m = c_.microbatches, layers = static_cast<double>(layers_);
  const double positions = m * static_cast<double>(tokens_) * 4;
  const double k = 2 * m * static_cast<double>(tokens_ * c_.groups / size("tp") * m_.head * m_.real);
  const double q = k / 2 * static_cast<double>(reps_);
  if (has("ring")) {
    add("cp", Phase::forward, layers * (n - 1) * (k + positions));
    add("cp", Phase::input_grad, layers * ((n - 1) * (k + positions) + n * k));
  } else {
    const double exchanged = has("all_gather") ? (n - 1) * k : (n - 1) / n * (2 * q + k);
    add("cp", Phase::forward, layers * exchanged + (n - 1) * positions);
    add("cp", Phase::input_grad, layers * exchanged);
  }
}

// Tokens to their experts and back, forward and backward; and once more where backward wants whole what
// experts made.
void Traffic::of_experts() {
  if (!has("expert")) return;
  const double once = c_.microbatches * static_cast<double>(layers_) * slots_ /
                      static_cast<double>(has("sequence") ? size("tp") : 1);
  share({"dp"}, Phase::forward, 2 * once);
  share({"dp"}, Phase::input_grad, (has("tensor") ? 3 : 2) * once);
}

// -- gradients and parameters -----------------------------------------------------------------------

// A pass gathers what it needs in turn, forward and backward; what the pass before read last is still there
// if it is among the first two.
std::vector<int64_t> Traffic::gathers() const {
  std::vector<size_t> forward, backward;
  const auto read = [](std::vector<size_t>& order, size_t bucket) {
    if (std::ranges::count(order, bucket) == 0) order.push_back(bucket);
  };
  size_t last_forward = 0, last_backward = 0;
  for (size_t i = params_.size(); i-- > 0;) read(forward, last_forward = params_[i].bucket);
  for (const Param& param : params_) {
    if (param.backward) read(backward, last_backward = param.bucket);
  }
  // The order in which a class works: 1f1b.
  const int64_t ahead = std::min<int64_t>(classes_ - 1 - klass_, c_.microbatches);
  std::vector<bool> passes(static_cast<size_t>(ahead), true);
  for (int64_t i = ahead; i < c_.microbatches; ++i) passes.insert(passes.end(), {true, false});
  passes.insert(passes.end(), static_cast<size_t>(ahead), false);
  std::vector<int64_t> out(buckets_.size());
  size_t last = buckets_.size();
  for (bool is_forward : passes) {
    const std::vector<size_t>& order = is_forward ? forward : backward;
    for (size_t i = 0; i < order.size(); ++i) out[order[i]] += i < 2 && order[i] == last ? 0 : 1;
    last = is_forward ? last_forward : last_backward;
  }
  return out;
}

void Traffic::of_gradients() {
  const std::vector<int64_t> times = gathers();
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    const Axes& summed = bucket.params[0].summed;
    const Zero cut = zero(summed);
    if (cut.near.empty() && cut.far.empty())
      all_reduce(summed, Phase::step, static_cast<double>(padded(bucket) * m_.real));
    else
      of_cut_gradient(bucket, cut, times[b]);
  }
}

// Gradients become parts, near ones first, in each microbatch or once; over what does not cut them they are
// summed as parts. Parameters are gathered near for their use, far when they are updated.
void Traffic::of_cut_gradient(const Bucket& bucket, const Zero& cut, int64_t gathers) {
  const int64_t near = size(cut.near), far = size(cut.far);
  const auto whole = static_cast<double>(padded(bucket) * m_.real);
  const auto held = near == 1 ? whole : static_cast<double>(largest_part(bucket, near, far) * m_.real);
  const auto updated = static_cast<double>(largest_part(bucket, near * far, 1) * m_.real);
  const bool each = cut.stage > 1 && c_.microbatches > 1;
  const Phase phase = each ? Phase::weight_grad : Phase::step;
  const double times = each ? c_.microbatches : 1;
  share(cut.near, phase, times * whole);
  share(cut.far, phase, times * held);
  Axes rest = bucket.params[0].summed;
  std::erase_if(rest, [&](const std::string& axis) {
    return std::ranges::count(cut.near, axis) + std::ranges::count(cut.far, axis) > 0;
  });
  all_reduce(rest, Phase::step, updated);
  share(cut.near, Phase::forward, whole * static_cast<double>(gathers));
  share(cut.far, Phase::step, held);
}

// Norms, where parameters or what is updated of them are cut; loss and count.
void Traffic::of_numbers() {
  std::map<Axes, int64_t> norms;
  for (const Param& param : params_) {
    const Zero zero_cut = zero(param.summed);
    Axes axes = param.cut;
    axes.insert(axes.end(), zero_cut.near.begin(), zero_cut.near.end());
    axes.insert(axes.end(), zero_cut.far.begin(), zero_cut.far.end());
    ++norms[in_order(axes)];
  }
  constexpr double kNumber = 8;
  for (const auto& [axes, count] : norms) all_reduce(axes, Phase::step, kNumber * static_cast<double>(count));
  const bool last = klass_ + 1 == classes_;
  for (const auto& [axis, size] : c_.mesh) {
    const bool shares_tokens = axis.starts_with("dp") || axis == "cp";
    if (last && shares_tokens) all_reduce({axis}, Phase::step, 2 * kNumber);
  }
  if (classes_ == 1) return;
  // The last stage tells all others, down a tree: members count from it.
  const int64_t member = last ? 0 : klass_ + 1;
  for (int64_t to = 1; (member & to) == 0 && member + to < classes_; to *= 2)
    add("pp", Phase::step, 2 * kNumber);
  all_reduce({"pp"}, Phase::step, kNumber);
}

}  // namespace tenon::test
