// optimizer/signsgd: the sign of the gradient, or of its moving average (Signum; Bernstein et al. 2018),
// with decoupled weight decay. An example of a plugin in C11 that uses nothing but abi/.
//
//   m <- momentum * m + (1 - momentum) * g     only if momentum > 0; m starts at 0
//   p <- p - lr * (sign(m or g) + weight_decay * p)
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tenon/optimizer.h"
#include "tenon/plugin.h"

// Elements that one part of a parallel_for updates.
#define CHUNK ((uint64_t)16384)

struct tenon_optimizer_state {
  const tenon_parallel* parallel;
  double momentum;
  double weight_decay;
};

// tenon_fill writes as much as the caller has room for.
static tenon_code fail(tenon_error* error, tenon_code code, const char* message) {
  tenon_error mine = {.struct_size = sizeof mine, .code = code};
  snprintf(mine.message, sizeof mine.message, "%s", message);
  tenon_fill(error, &mine);
  return code;
}

// The host has checked the options: each is there, of its type and within its limits.
static double number(const tenon_option* options, uint32_t num_options, const char* key) {
  for (uint32_t i = 0; i < num_options; ++i) {
    if (strcmp(options[i].key, key) == 0) return options[i].f;
  }
  abort();
}

static tenon_code open_state(const tenon_optimizer_config* config, tenon_optimizer_state** out,
                             tenon_error* error) {
  const tenon_host* host = config->host;
  const tenon_parallel* parallel =
      TENON_FN(host, tenon_host, get_interface) ? host->get_interface(host, TENON_HOST_PARALLEL) : NULL;
  if (parallel == NULL || !TENON_FN(parallel, tenon_parallel, parallel_for)) {
    return fail(error, TENON_E_VERSION, "the host offers no " TENON_HOST_PARALLEL);
  }
  const double momentum = number(config->options, config->num_options, "momentum");
  if (momentum == 1.0) {
    return fail(error, TENON_E_ARGUMENT, "momentum = 1 would never look at a gradient: set it below 1");
  }
  tenon_optimizer_state* state = malloc(sizeof *state);
  if (state == NULL) return fail(error, TENON_E_MEMORY, "out of memory");
  state->parallel = parallel;
  state->momentum = momentum;
  state->weight_decay = number(config->options, config->num_options, "weight_decay");
  *out = state;
  return TENON_OK;
}

static void close_state(tenon_optimizer_state* state) { free(state); }

static const tenon_slot_decl average_slot = {
    .struct_size = sizeof(tenon_slot_decl), .dtype = TENON_SLOT_DTYPE_OF_PARAM, .name = "momentum"};
static const tenon_slot_decl* const slots[] = {&average_slot};

static tenon_code describe(const tenon_optimizer_state* state, tenon_optimizer_info* info,
                           tenon_error* error) {
  (void)error;
  const tenon_optimizer_info mine = {
      .struct_size = sizeof mine,
      .num_slots = state->momentum > 0.0 ? 1 : 0,
      .slots = slots,
      .granule = TENON_GRANULE_ELEMENT,
  };
  tenon_fill(info, &mine);
  return TENON_OK;
}

// What one update does, as a job for parallel_for.
typedef struct job {
  const tenon_optimizer_state* state;
  const tenon_update* update;
  const tenon_step_scalars* scalars;
} job;

// The rule for elements [begin, end) of type T. A gradient that is not a number makes the parameter one
// too, so that it is seen: its sign is itself.
#define DEFINE_RULE(T)                                                               \
  static void rule_##T(const job* j, uint64_t begin, uint64_t end) {                 \
    const T momentum = (T)j->state->momentum, fresh = (T)(1.0 - j->state->momentum); \
    const T scale = (T)j->scalars->grad_scale, lr = (T)j->scalars->lr;               \
    const T decay = (T)j->state->weight_decay;                                       \
    T* param = j->update->param;                                                     \
    const T* grad = j->update->grad;                                                 \
    T* average = momentum > 0 ? j->update->slots[0] : NULL;                          \
    for (uint64_t i = begin; i < end; ++i) {                                         \
      T g = scale * grad[i];                                                         \
      if (average != NULL) g = average[i] = momentum * average[i] + fresh * g;       \
      const T sign = g > 0 ? (T)1 : g < 0 ? (T)-1 : g;                               \
      param[i] = param[i] - lr * (sign + decay * param[i]);                          \
    }                                                                                \
  }
DEFINE_RULE(float)
DEFINE_RULE(double)

static void run_chunk(void* arg, int64_t part) {
  const job* j = arg;
  const uint64_t begin = (uint64_t)part * CHUNK, count = j->update->count;
  const uint64_t end = count - begin < CHUNK ? count : begin + CHUNK;
  if (j->update->dtype == TENON_F32) {
    rule_float(j, begin, end);
  } else {
    rule_double(j, begin, end);
  }
}

static tenon_code step(tenon_optimizer_state* state, const tenon_stream* stream,
                       const tenon_update* const* updates, uint32_t num_updates,
                       const tenon_step_scalars* scalars, tenon_error* error) {
  if (stream != NULL && stream->device.device_type != kDLCPU) {
    return fail(error, TENON_E_UNSUPPORTED, "optimizer/signsgd works on the CPU only");
  }
  // Everything is checked before anything is changed.
  for (uint32_t i = 0; i < num_updates; ++i) {
    if (updates[i]->dtype != TENON_F32 && updates[i]->dtype != TENON_F64) {
      return fail(error, TENON_E_UNSUPPORTED, "optimizer/signsgd updates f32 and f64 parameters only");
    }
  }
  for (uint32_t i = 0; i < num_updates; ++i) {
    job j = {state, updates[i], scalars};
    const int64_t parts = (int64_t)((updates[i]->count + CHUNK - 1) / CHUNK);
    state->parallel->parallel_for(state->parallel, parts, run_chunk, &j);
  }
  return TENON_OK;
}

static const tenon_optimizer optimizer = {
    sizeof(tenon_optimizer), kDLCPU, open_state, close_state, describe, NULL, step};

// Nothing to do: what a state needs of the host, it is given when it is opened.
static tenon_code init(const tenon_host* host, tenon_error* error) {
  (void)host;
  (void)error;
  return TENON_OK;
}

static void deinit(void) {}

static const void* get_interface(const char* id) {
  return strcmp(id, TENON_OPTIMIZER) == 0 ? &optimizer : NULL;
}

static const tenon_option_decl momentum = {
    .struct_size = sizeof(tenon_option_decl),
    .kind = TENON_FLOAT,
    .name = "momentum",
    .doc = "share of the moving average that is kept, below 1; 0: no state",
    .fallback = "0",
    .choices = NULL,
    .min = 0.0,
    .max = 1.0,
};
static const tenon_option_decl weight_decay = {
    .struct_size = sizeof(tenon_option_decl),
    .kind = TENON_FLOAT,
    .name = "weight_decay",
    .doc = "lr * weight_decay * p is taken from each parameter",
    .fallback = "0",
    .choices = NULL,
    .min = 0.0,
    .max = INFINITY,
};
static const tenon_option_decl* const options[] = {&momentum, &weight_decay};

const tenon_plugin tenon_plugin_v0 = {
    .struct_size = sizeof(tenon_plugin),
    .abi_major = TENON_ABI_MAJOR,
    .abi_minor_built = TENON_ABI_MINOR,
    .abi_minor_required = TENON_ABI_OLDEST_MINOR,
    .id = "optimizer/signsgd",
    .version = "0.1.0",
    .doc = "The sign of the gradient or of its moving average (Signum)",
    .options = options,
    .num_options = sizeof options / sizeof *options,
    .init = init,
    .deinit = deinit,
    .get_interface = get_interface,
};
