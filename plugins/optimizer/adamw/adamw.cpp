// optimizer/adamw: Adam with decoupled weight decay (Loshchilov and Hutter 2019), as torch.optim.AdamW
// computes it.
#include <atomic>
#include <limits>
#include <memory>

#include "adamw_rule.hpp"

struct tenon_optimizer_state {
  tenon::optimizer::AdamWOptions options;
  tenon::optimizer::Isa isa;
};

namespace {

using tenon::optimizer::AdamWConstants;
using tenon::optimizer::AdamWOptions;
using tenon::optimizer::AdamWRule;
using tenon::sdk::Failure;
using tenon::sdk::guard;

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
constexpr tenon_option_decl kBeta1 = {sizeof(tenon_option_decl),
                                      TENON_FLOAT,
                                      "beta1",
                                      "decay of the mean of gradients, below 1",
                                      "0.9",
                                      nullptr,
                                      0.0,
                                      1.0};
constexpr tenon_option_decl kBeta2 = {sizeof(tenon_option_decl),
                                      TENON_FLOAT,
                                      "beta2",
                                      "decay of the mean of squared gradients, below 1",
                                      "0.999",
                                      nullptr,
                                      0.0,
                                      1.0};
constexpr tenon_option_decl kEps = {sizeof(tenon_option_decl),
                                    TENON_FLOAT,
                                    "eps",
                                    "added to the denominator",
                                    "1e-8",
                                    nullptr,
                                    0.0,
                                    kNoLimit};
constexpr tenon_option_decl kWeightDecay = {sizeof(tenon_option_decl),
                                            TENON_FLOAT,
                                            "weight_decay",
                                            "decoupled: each step scales parameters by 1 - lr * weight_decay",
                                            "0.01",
                                            nullptr,
                                            0.0,
                                            kNoLimit};
constexpr const tenon_option_decl* kOptions[] = {&kBeta1, &kBeta2, &kEps, &kWeightDecay};

constexpr tenon_slot_decl kSlots[] = {{"exp_avg", TENON_SLOT_DTYPE_OF_PARAM, 0},
                                      {"exp_avg_sq", TENON_SLOT_DTYPE_OF_PARAM, 0}};

// Set by init, before any other call. NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<const tenon_parallel*> pool = nullptr;

double decay_rate(const tenon::sdk::Options& options, const char* key) {
  const double beta = options.number(key);
  if (beta < 1.0) return beta;
  throw Failure(TENON_E_ARGUMENT, std::string(key) + " = 1: must be below 1");
}

tenon_code open_state(const tenon_option* options, uint32_t num_options, tenon_optimizer_state** out,
                      tenon_error* error) {
  return guard(error, [&] {
    const tenon::sdk::Options o(options, num_options);
    const AdamWOptions values = {decay_rate(o, "beta1"), decay_rate(o, "beta2"), o.number("eps"),
                                 o.number("weight_decay")};
    *out = new tenon_optimizer_state{values, tenon::optimizer::best_isa()};
  });
}

void close_state(tenon_optimizer_state* state) { delete state; }

tenon_code describe(const tenon_optimizer_state*, tenon_optimizer_info* info, tenon_error*) {
  *info = {sizeof(tenon_optimizer_info), std::size(kSlots), kSlots, TENON_GRANULE_ELEMENT, 0};
  return TENON_OK;
}

template <class T>
void update_chunk(const tenon_optimizer_state& state, const AdamWConstants<T>& constants,
                  const tenon_update& u, uint64_t first, uint64_t count) {
  const AdamWRule<T> rule = {constants, static_cast<T*>(u.param) + first,
                             static_cast<const T*>(u.grad) + first, static_cast<T*>(u.slots[0]) + first,
                             static_cast<T*>(u.slots[1]) + first};
  tenon::optimizer::run_on(state.isa, rule, count);
}

tenon_code step(tenon_optimizer_state* state, const tenon_stream* stream, tenon_update* const* updates,
                uint32_t num_updates, const tenon_step_scalars* scalars, tenon_error* error) {
  return guard(error, [&] {
    tenon::optimizer::check_step(stream, updates, num_updates, *scalars);
    const AdamWConstants<float> single(state->options, *scalars);
    const AdamWConstants<double> twice(state->options, *scalars);
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
                                                 "optimizer/adamw",
                                                 "0.1.0",
                                                 "Adam with decoupled weight decay, on the CPU",
                                                 kOptions,
                                                 std::size(kOptions),
                                                 init,
                                                 deinit,
                                                 get_interface};
