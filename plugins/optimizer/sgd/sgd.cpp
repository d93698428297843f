// optimizer/sgd: gradient descent with momentum, Nesterov momentum and weight decay, as torch.optim.SGD
// computes it.
#include "sgd_rule.hpp"

namespace {

using namespace tenon::optimizer;
using tenon::sdk::bool_option;
using tenon::sdk::Failure;
using tenon::sdk::float_option;

constexpr tenon_option_decl kMomentum =
    float_option("momentum", "share of the last update that is kept; 0: no state", "0", 0, 1);
constexpr tenon_option_decl kWeightDecay =
    float_option("weight_decay", "weight_decay * parameter is added to the gradient", "0", 0);
constexpr tenon_option_decl kNesterov =
    bool_option("nesterov", "look ahead along the momentum, which must be above 0", "false");
constexpr const tenon_option_decl* kOptions[] = {&kMomentum, &kWeightDecay, &kNesterov};

constexpr tenon_slot_decl kMomentumSlot = slot("momentum");
constexpr const tenon_slot_decl* kSlots[] = {&kMomentumSlot};

struct Sgd {
  using Options = SgdOptions;
  template <class T>
  using Constants = SgdConstants<T>;

  static Options parse(const tenon::sdk::Options& o) {
    const Options values = {o.number("momentum"), o.number("weight_decay"), o.boolean("nesterov")};
    if (values.nesterov && values.momentum == 0.0) {
      throw Failure(TENON_E_ARGUMENT, "nesterov = true with momentum = 0: set momentum above 0");
    }
    return values;
  }
  static std::span<const tenon_slot_decl* const> slots(const Options& options) {
    return std::span(kSlots).first(options.momentum > 0.0 ? 1 : 0);
  }

  template <class T>
  static void update(Isa isa, const Options& options, const Constants<T>& constants, const tenon_update& u,
                     uint64_t first, uint64_t count) {
    if (options.nesterov) {
      run<Momentum::kNesterov>(isa, constants, u, first, count);
    } else if (options.momentum > 0.0) {
      run<Momentum::kPlain>(isa, constants, u, first, count);
    } else {
      run<Momentum::kNone>(isa, constants, u, first, count);
    }
  }

 private:
  template <Momentum kKind, class T>
  static void run(Isa isa, const Constants<T>& constants, const tenon_update& u, uint64_t first,
                  uint64_t count) {
    T* buffer = kKind == Momentum::kNone ? nullptr : static_cast<T*>(u.slots[0]) + first;
    const SgdRule<T, kKind> rule = {constants, static_cast<T*>(u.param) + first,
                                    static_cast<const T*>(u.grad) + first, buffer};
    run_on(isa, rule, count);
  }
};

constexpr tenon_optimizer kTable = MultiTensor<Sgd>::table();

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = tenon::sdk::plugin_with<TENON_OPTIMIZER, kTable>(
    "optimizer/sgd", "0.1.0", "Stochastic gradient descent with momentum, on the CPU", kOptions);
