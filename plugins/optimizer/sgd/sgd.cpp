// optimizer/sgd: gradient descent with momentum, Nesterov momentum and weight decay, as torch.optim.SGD
// computes it.
#include <atomic>
#include <limits>

#include "sgd_rule.hpp"

struct tenon_optimizer_state {
  tenon::optimizer::SgdOptions options;
  tenon::optimizer::Isa isa;
};

namespace {

using tenon::optimizer::Momentum;
using tenon::optimizer::SgdConstants;
using tenon::optimizer::SgdOptions;
using tenon::optimizer::SgdRule;
using tenon::sdk::Failure;
using tenon::sdk::guard;

constexpr tenon_option_decl kMomentum = {sizeof(tenon_option_decl),
                                         TENON_FLOAT,
                                         "momentum",
                                         "share of the last update that is kept; 0: no state",
                                         "0",
                                         nullptr,
                                         0.0,
                                         1.0};
constexpr tenon_option_decl kWeightDecay = {sizeof(tenon_option_decl),
                                            TENON_FLOAT,
                                            "weight_decay",
                                            "weight_decay * parameter is added to the gradient",
                                            "0",
                                            nullptr,
                                            0.0,
                                            std::numeric_limits<double>::infinity()};
constexpr tenon_option_decl kNesterov = {sizeof(tenon_option_decl),
                                         TENON_BOOL,
                                         "nesterov",
                                         "look ahead along the momentum, which must be above 0",
                                         "false",
                                         nullptr,
                                         1.0,
                                         0.0};
constexpr const tenon_option_decl* kOptions[] = {&kMomentum, &kWeightDecay, &kNesterov};

constexpr tenon_slot_decl kSlots[] = {{"momentum", TENON_SLOT_DTYPE_OF_PARAM, 0}};

// Set by init, before any other call. NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<const tenon_parallel*> pool = nullptr;

tenon_code open_state(const tenon_option* options, uint32_t num_options, tenon_optimizer_state** out,
                      tenon_error* error) {
  return guard(error, [&] {
    const tenon::sdk::Options o(options, num_options);
    const SgdOptions values = {o.number("momentum"), o.number("weight_decay"), o.boolean("nesterov")};
    if (values.nesterov && values.momentum == 0.0) {
      throw Failure(TENON_E_ARGUMENT, "nesterov = true with momentum = 0: set momentum above 0");
    }
    *out = new tenon_optimizer_state{values, tenon::optimizer::best_isa()};
  });
}

void close_state(tenon_optimizer_state* state) { delete state; }

tenon_code describe(const tenon_optimizer_state* state, tenon_optimizer_info* info, tenon_error*) {
  const uint32_t num_slots = state->options.momentum > 0.0 ? 1 : 0;
  *info = {sizeof(tenon_optimizer_info), num_slots, kSlots, TENON_GRANULE_ELEMENT, 0};
  return TENON_OK;
}

template <Momentum kKind, class T>
void run_chunk(const tenon_optimizer_state& state, const SgdConstants<T>& constants, const tenon_update& u,
               uint64_t first, uint64_t count) {
  T* buffer = kKind == Momentum::kNone ? nullptr : static_cast<T*>(u.slots[0]) + first;
  const SgdRule<T, kKind> rule = {constants, static_cast<T*>(u.param) + first,
                                  static_cast<const T*>(u.grad) + first, buffer};
  tenon::optimizer::run_on(state.isa, rule, count);
}

template <class T>
void update_chunk(const tenon_optimizer_state& state, const SgdConstants<T>& constants, const tenon_update& u,
                  uint64_t first, uint64_t count) {
  if (state.options.nesterov) {
    run_chunk<Momentum::kNesterov>(state, constants, u, first, count);
  } else if (state.options.momentum > 0.0) {
    run_chunk<Momentum::kPlain>(state, constants, u, first, count);
  } else {
    run_chunk<Momentum::kNone>(state, constants, u, first, count);
  }
}

tenon_code step(tenon_optimizer_state* state, const tenon_stream* stream, tenon_update* const* updates,
                uint32_t num_updates, const tenon_step_scalars* scalars, tenon_error* error) {
  return guard(error, [&] {
    tenon::optimizer::check_step(stream, updates, num_updates, *scalars);
    const SgdConstants<float> single(state->options, *scalars);
    const SgdConstants<double> twice(state->options, *scalars);
    tenon::optimizer::for_each_chunk(pool, updates, num_updates,
                                     [&](const tenon_update& u, uint64_t first, uint64_t count) {
                                       if (u.dtype == TENON_F32) {
                                         update_chunk(*state, single, u, first, count);
                                       } else {
                                         update_chunk(*state, twice, u, first, count);
                                       }
                                     });
  });
}

constexpr tenon_optimizer kTable = {
    sizeof(tenon_optimizer), kDLCPU, open_state, close_state, describe, nullptr, step};

tenon_code init(const tenon_host* host, tenon_error*) {
  pool = static_cast<const tenon_parallel*>(host->get_interface(host, TENON_HOST_PARALLEL));
  return TENON_OK;
}

void deinit() { pool = nullptr; }

const void* get_interface(const char* id) {
  return std::strcmp(id, TENON_OPTIMIZER) == 0 ? &kTable : nullptr;
}

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = {sizeof(tenon_plugin),
                                                 TENON_ABI_MAJOR,
                                                 TENON_ABI_MINOR,
                                                 TENON_ABI_MINOR,
                                                 "optimizer/sgd",
                                                 "0.1.0",
                                                 "Stochastic gradient descent with momentum, on the CPU",
                                                 kOptions,
                                                 std::size(kOptions),
                                                 init,
                                                 deinit,
                                                 get_interface};
