// tenon/optimizer.h - the update rule. The core owns parameters, gradients, state, the learning rate,
// clipping, sharding, groups and saving; the plugin owns only the arithmetic.
#ifndef TENON_OPTIMIZER_H
#define TENON_OPTIMIZER_H

#include "base.h"
#include "host.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_OPTIMIZER "tenon.optimizer/1"

typedef struct tenon_optimizer_state tenon_optimizer_state;  // options, parsed

// How finely a tensor may be cut for the rule to stay itself. (uint32_t fields)
enum { TENON_GRANULE_ELEMENT = 0, TENON_GRANULE_ROW = 1, TENON_GRANULE_TENSOR = 2 };

typedef struct tenon_optimizer_config {
  uint32_t struct_size;
  uint32_t num_options;
  const tenon_host* host;       // never NULL; valid until close
  const tenon_option* options;  // all declared options, in order
} tenon_optimizer_config;
TENON_SEAL(tenon_optimizer_config, options);

// One tensor of state per parameter, zero when training starts.
typedef struct tenon_slot_decl {
  uint32_t struct_size;
  uint32_t dtype;    // TENON_F32 ...; 0xffffffff: that of the parameter
  const char* name;  // "exp_avg": saved as <param>/<plugin>.<name>; of A-Z a-z 0-9 . _ -, each name once
} tenon_slot_decl;
TENON_SEAL(tenon_slot_decl, name);
#define TENON_SLOT_DTYPE_OF_PARAM 0xffffffffu

typedef struct tenon_optimizer_info {
  uint32_t struct_size;
  uint32_t num_slots;
  const tenon_slot_decl* const* slots;  // owned by the plugin, lives as long as the state
  uint32_t granule;
  uint32_t num_stats;  // per parameter: sums over its elements that the core reduces; 0: none
} tenon_optimizer_info;
TENON_SEAL(tenon_optimizer_info, num_stats);

// Scalars of one step, in host memory.
typedef struct tenon_step_scalars {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t step;       // 1 for the first update
  double lr;          // learning rate of this step
  double grad_scale;  // multiply gradients by this first: clipping / number of tokens
} tenon_step_scalars;
TENON_SEAL(tenon_step_scalars, grad_scale);

// One contiguous piece of one parameter. Pointers are to `count` elements. This rank holds a block of the
// parameter, which is all of it unless a strategy cuts dims of it: the piece is elements
// [first, first + count) of that block, row-major. It is the host's, and the same one in each step: what the
// pointers point to is written, the struct is not.
typedef struct tenon_update {
  uint32_t struct_size;
  uint32_t dtype;  // of param and grad
  uint64_t count;
  uint64_t rows;  // leading dimension of the piece (granule ROW and up), else 1
  void* param;    // in, out
  const void* grad;
  void* const* slots;  // in, out; num_slots of them
  double* stats;       // stats(): out, sums over the piece; step(): in, over the whole parameter
  const char* name;    // of the parameter: "blocks.0.attn.qkv.weight"
  uint64_t first;
  const int64_t* dims;    // of the whole parameter; ndim of them
  const int64_t* starts;  // where the block begins in it
  const int64_t* sizes;   // of the block
  uint32_t ndim;
  uint32_t reserved;
} tenon_update;
TENON_SEAL(tenon_update, reserved);

typedef struct tenon_optimizer {
  uint32_t struct_size;
  uint32_t device_type;  // DLDeviceType it can work on
  // [any-thread]
  tenon_code (*open)(const tenon_optimizer_config* config, tenon_optimizer_state** out, tenon_error* error);
  // [any-thread]
  void (*close)(tenon_optimizer_state* state);
  // Pure: the same each time. [thread-safe]
  tenon_code (*describe)(const tenon_optimizer_state* state, tenon_optimizer_info* info, tenon_error* error);
  // May be NULL where num_stats is 0. Writes the num_stats partial sums of each piece into its `stats`.
  // Changes nothing else. [rank-thread]
  tenon_code (*stats)(tenon_optimizer_state* state, const tenon_stream* stream,
                      const tenon_update* const* updates, uint32_t num_updates,
                      const tenon_step_scalars* scalars, tenon_error* error);
  // Updates all pieces in one pass. Each element's result depends on that element alone (and stats),
  // never on how pieces are cut or on the number of threads. Allocates nothing. Where gradients and the
  // learning rate are not zero, something of all that is trained changes, be it state alone: N002.
  // [rank-thread]
  tenon_code (*step)(tenon_optimizer_state* state, const tenon_stream* stream,
                     const tenon_update* const* updates, uint32_t num_updates,
                     const tenon_step_scalars* scalars, tenon_error* error);
} tenon_optimizer;
TENON_SEAL(tenon_optimizer, step);

#ifdef __cplusplus
}
#endif
#endif
