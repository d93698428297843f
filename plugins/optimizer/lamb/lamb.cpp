// optimizer/lamb: Adam's direction, with a step as long as the learning rate times the parameter (You et al.,
// "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", ICLR 2020, algorithm 2).
#include "lamb_rule.hpp"

namespace {

using namespace tenon::optimizer;
using tenon::sdk::float_option;

constexpr tenon_option_decl kEps = float_option("eps", "added to the denominator", "1e-6", 0);
constexpr tenon_option_decl kWeightDecay =
    float_option("weight_decay", "weight_decay * parameter is added to its direction", "0.01", 0);
constexpr const tenon_option_decl* kOptions[] = {&kBeta1, &kBeta2, &kEps, &kWeightDecay};

struct Lamb {
  using Options = MomentOptions;
  template <class T>
  using Constants = LambConstants<T>;
  static constexpr uint32_t kStats = 2;  // squares of the parameter, and of its direction

  static Options parse(const tenon::sdk::Options& o) { return MomentOptions::parse(o); }
  static std::span<const tenon_slot_decl* const> slots(const Options&) { return kMomentSlots; }

  template <class T>
  static void measure(Isa isa, const Options&, const Constants<T>& constants, const tenon_update& u,
                      uint64_t first, uint64_t count, double* sums) {
    const LambMeasure<T> rule = {constants,
                                 static_cast<const T*>(u.param) + first,
                                 static_cast<const T*>(u.grad) + first,
                                 static_cast<const T*>(u.slots[0]) + first,
                                 static_cast<const T*>(u.slots[1]) + first,
                                 sums};
    run_on(isa, rule, count);
  }

  template <class T>
  static void update(Isa isa, const Options&, const Constants<T>& constants, const tenon_update& u,
                     uint64_t first, uint64_t count) {
    const LambRule<T> rule = {constants,
                              static_cast<T>(constants.lr * trust_ratio(u.stats)),
                              static_cast<T*>(u.param) + first,
                              static_cast<const T*>(u.grad) + first,
                              static_cast<T*>(u.slots[0]) + first,
                              static_cast<T*>(u.slots[1]) + first};
    run_on(isa, rule, count);
  }
};

constexpr tenon_optimizer kTable = MultiTensor<Lamb>::table();

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = tenon::sdk::plugin_with<TENON_OPTIMIZER, kTable>(
    "optimizer/lamb", "0.1.0", "Adam with a rate for each parameter, for large batches, on the CPU",
    kOptions);
