// optimizer/adamw: Adam with decoupled weight decay (Loshchilov and Hutter 2019), as torch.optim.AdamW
// computes it.
#include "adamw_rule.hpp"

namespace {

using namespace tenon::optimizer;
using tenon::sdk::float_option;

constexpr tenon_option_decl kEps = float_option("eps", "added to the denominator", "1e-8", 0);
constexpr tenon_option_decl kWeightDecay = float_option(
    "weight_decay", "decoupled: each step scales parameters by 1 - lr * weight_decay", "0.01", 0);
constexpr const tenon_option_decl* kOptions[] = {&kBeta1, &kBeta2, &kEps, &kWeightDecay};

struct AdamW {
  using Options = MomentOptions;
  template <class T>
  using Constants = AdamWConstants<T>;

  static Options parse(const tenon::sdk::Options& o) { return MomentOptions::parse(o); }
  static std::span<const tenon_slot_decl* const> slots(const Options&) { return kMomentSlots; }

  template <class T>
  static void update(Isa isa, const Options&, const Constants<T>& constants, const tenon_update& u,
                     uint64_t first, uint64_t count) {
    const AdamWRule<T> rule = {constants, static_cast<T*>(u.param) + first,
                               static_cast<const T*>(u.grad) + first, static_cast<T*>(u.slots[0]) + first,
                               static_cast<T*>(u.slots[1]) + first};
    run_on(isa, rule, count);
  }
};

constexpr tenon_optimizer kTable = MultiTensor<AdamW>::table();

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = tenon::sdk::plugin_with<TENON_OPTIMIZER, kTable>(
    "optimizer/adamw", "0.1.0", "Adam with decoupled weight decay, on the CPU", kOptions);
