// tenon/draft/pass.h - DRAFT, may change: how a strategy annotates the graph. A pass says where values
// live; the core inserts the collectives. A pass is a pure function of graph and options: it asks for
// no rank, clock or device.
#ifndef TENON_DRAFT_PASS_H
#define TENON_DRAFT_PASS_H

#include "../base.h"
#include "../host.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_PASS "tenon.pass/1"

typedef struct tenon_graph tenon_graph;
typedef uint32_t tenon_op_id;     // 0: none
typedef uint32_t tenon_value_id;  // 0: none

enum {
  TENON_ROLE_INPUT = 0,
  TENON_ROLE_ACT = 1,
  TENON_ROLE_PARAM = 2,
  TENON_ROLE_GRAD = 3,
  TENON_ROLE_STATE = 4,
  TENON_ROLE_SCALAR = 5
};
// When a pass runs. All passes of phase A run before all of phase B, in either phase in the order of the
// recipe's strategies; so what a pass of phase B asks, it asks of a graph that phase A is done with. Any
// other phase is refused (A005).
//   A  decides what is computed where: shard, replicate, set_stage, substitute, sum_late, split_axis.
//   B  decides how parameters that have their places rest there: store.
enum { TENON_PHASE_A = 0, TENON_PHASE_B = 1 };

typedef struct tenon_value_info {
  uint32_t struct_size;
  uint32_t role;
  const char* name;
  uint32_t dtype;
  uint32_t ndim;
  const int64_t* dims;
  const char* const* dim_names;  // "batch", "seq", "hidden", "head" ...
  int32_t layer;                 // -1: outside the repeated blocks
  tenon_op_id producer;
} tenon_value_info;
TENON_SEAL(tenon_value_info, producer);

// Query and annotate: what `api` and `graph` of a running pass are for, and only until run() returns.
// Returned arrays are borrowed until the next call, strings until the next annotation. A NULL is refused, but
// where it says what one means: with TENON_E_ARGUMENT, 0, "" or NULL.
typedef struct tenon_graph_api {
  uint32_t struct_size;
  uint32_t reserved;
  // How many ops there are, and all of them, in an order in which each stands behind what it reads.
  // [any-thread]
  uint32_t (*ops)(tenon_graph* graph, const tenon_op_id** out);
  // "linear": docs/reference/ops.md. [any-thread]
  const char* (*op_kind)(tenon_graph* graph, tenon_op_id op);
  // [any-thread]
  uint32_t (*op_inputs)(tenon_graph* graph, tenon_op_id op, const tenon_value_id** out);
  // [any-thread]
  uint32_t (*op_outputs)(tenon_graph* graph, tenon_op_id op, const tenon_value_id** out);
  // How many values there are, and all of them: inputs, parameters and what ops make. [any-thread]
  uint32_t (*values)(tenon_graph* graph, const tenon_value_id** out);
  // [any-thread]
  tenon_code (*value)(tenon_graph* graph, tenon_value_id value, tenon_value_info* out, tenon_error* error);
  // Size of a mesh axis, 0 when there is none of that name. A name of which the mesh has only atoms ("dp" of
  // "dp_out" and "dp_in") means all of them, here and wherever an axis is named. [any-thread]
  int64_t (*axis_size)(tenon_graph* graph, const char* axis);
  // Shards dimension `dim` of a value over a mesh axis, inside the axes already set on it. Two passes
  // that disagree about one value are an error that names both. [any-thread]
  tenon_code (*shard)(tenon_graph* graph, tenon_value_id value, uint32_t dim, const char* axis,
                      tenon_error* error);
  // States that a value is replicated over an axis (which is not the same as saying nothing). [any-thread]
  tenon_code (*replicate)(tenon_graph* graph, tenon_value_id value, const char* axis, tenon_error* error);
  // Lets a parameter rest in flat parts over an axis: level 1 its optimizer state, 2 its gradient
  // too, 3 the parameter itself too: `within`, a part of `axis`, cuts it less than the rest, so that gathers
  // stay near; NULL, as for the other levels: as much. Only axes over which its gradient is reduced count.
  // [any-thread]
  tenon_code (*store)(tenon_graph* graph, tenon_value_id value, uint32_t level, const char* axis,
                      const char* within, tenon_error* error);
  // Puts an op on a stage, counted from 0 and below the number of ops, of a pipeline whose stages are spread
  // over one axis. [any-thread]
  tenon_code (*set_stage)(tenon_graph* graph, tenon_op_id op, uint32_t stage, const char* axis,
                          tenon_error* error);
  // Makes an op one of another kind with the same operands and attributes ("attention_ring" of "attention").
  // [any-thread]
  tenon_code (*substitute)(tenon_graph* graph, tenon_op_id op, const char* kind, tenon_error* error);
  // Floating-point operations of one call on the whole (not sharded) operands. [any-thread]
  double (*op_flops)(tenon_graph* graph, tenon_op_id op);
  // Name of the i-th atom that the name of an axis means, major first; NULL behind the last. [any-thread]
  const char* (*axis_atom)(tenon_graph* graph, const char* axis, uint32_t i);
  // Wants the first atoms of an axis to have `outer` ranks together. Where they have not, the axis is split:
  // all passes run once more on the new mesh, and this call fails, whose code the pass returns.
  // [any-thread]
  tenon_code (*split_axis)(tenon_graph* graph, const char* axis, int64_t outer, tenon_error* error);
  // Lets a value's gradient stay a partial sum over an axis where what reads it is linear in it: then
  // parameters' gradients, or sums of gradients, are summed instead. [any-thread]
  tenon_code (*sum_late)(tenon_graph* graph, tenon_value_id value, const char* axis, tenon_error* error);
} tenon_graph_api;
TENON_SEAL(tenon_graph_api, sum_late);

typedef struct tenon_pass_config {
  uint32_t struct_size;
  uint32_t num_options;
  const tenon_host* host;       // never NULL; valid for the call
  const tenon_option* options;  // all declared options, in order
  const tenon_graph_api* api;
} tenon_pass_config;
TENON_SEAL(tenon_pass_config, api);

// The words are lower-case names that strategies agree on, separated by spaces; NULL: none. They are compared
// over all strategies of a recipe, whatever their phase and order (P004): "data", "tensor", "context",
// "expert", "pipeline" and "zero" are provided by the plugins of these names.
typedef struct tenon_pass {
  uint32_t struct_size;
  uint32_t phase;
  const char* axes;       // mesh axes that it works on by itself: "dp". For readers; the core does not ask
  const char* provides;   // what it does: "zero"
  const char* needs;      // each must be provided by some strategy of the recipe, which may be this one
  const char* conflicts;  // none may be provided by another strategy of the recipe
  // A pure function, which may run several times on one recipe: with other sizes of microbatches, and anew
  // when a pass has split an axis. [thread-safe]
  tenon_code (*run)(const tenon_pass_config* config, tenon_graph* graph, tenon_error* error);
} tenon_pass;
TENON_SEAL(tenon_pass, run);

#ifdef __cplusplus
}
#endif
#endif
