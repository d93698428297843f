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
enum { TENON_PHASE_A = 0, TENON_PHASE_B = 1, TENON_PHASE_C = 2 };

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

// Query and annotate. Returned arrays and strings are borrowed until the next annotation. A NULL is refused.
typedef struct tenon_graph_api {
  uint32_t struct_size;
  uint32_t reserved;
  uint32_t (*ops)(tenon_graph* graph, const tenon_op_id** out);
  const char* (*op_kind)(tenon_graph* graph, tenon_op_id op);
  uint32_t (*op_inputs)(tenon_graph* graph, tenon_op_id op, const tenon_value_id** out);
  uint32_t (*op_outputs)(tenon_graph* graph, tenon_op_id op, const tenon_value_id** out);
  uint32_t (*values)(tenon_graph* graph, const tenon_value_id** out);
  tenon_code (*value)(tenon_graph* graph, tenon_value_id value, tenon_value_info* out, tenon_error* error);
  // Size of a mesh axis, 0 when there is none of that name. A name of which the mesh has only atoms ("dp" of
  // "dp_out" and "dp_in") means all of them, here and wherever an axis is named.
  int64_t (*axis_size)(tenon_graph* graph, const char* axis);
  // Shards dimension `dim` of a value over a mesh axis, inside the axes already set on it. Two passes
  // that disagree about one value are an error that names both.
  tenon_code (*shard)(tenon_graph* graph, tenon_value_id value, uint32_t dim, const char* axis,
                      tenon_error* error);
  // States that a value is replicated over an axis (which is not the same as saying nothing).
  tenon_code (*replicate)(tenon_graph* graph, tenon_value_id value, const char* axis, tenon_error* error);
  // Phase B. Lets a parameter rest in flat parts over an axis: level 1 its optimizer state, 2 its gradient
  // too, 3 the parameter itself too: `within`, a part of `axis`, cuts it less than the rest, so that gathers
  // stay near; NULL, as for the other levels: as much. Only axes over which its gradient is reduced count.
  tenon_code (*store)(tenon_graph* graph, tenon_value_id value, uint32_t level, const char* axis,
                      const char* within, tenon_error* error);
  // Puts an op on a stage, counted from 0, of a pipeline whose stages are spread over one axis.
  tenon_code (*set_stage)(tenon_graph* graph, tenon_op_id op, uint32_t stage, const char* axis,
                          tenon_error* error);
  // Makes an op one of another kind with the same operands and attributes ("attention_ring" of "attention").
  tenon_code (*substitute)(tenon_graph* graph, tenon_op_id op, const char* kind, tenon_error* error);
  // Floating-point operations of one call on the whole (not sharded) operands.
  double (*op_flops)(tenon_graph* graph, tenon_op_id op);
  // Name of the i-th atom that the name of an axis means, major first; NULL behind the last.
  const char* (*axis_atom)(tenon_graph* graph, const char* axis, uint32_t i);
  // Wants the first atoms of an axis to have `outer` ranks together. Where they have not, the axis is split:
  // all passes run once more on the new mesh, and this call fails, whose code the pass returns.
  tenon_code (*split_axis)(tenon_graph* graph, const char* axis, int64_t outer, tenon_error* error);
  // Lets a value's gradient stay a partial sum over an axis where what reads it is linear in it: then
  // parameters' gradients, or sums of gradients, are summed instead.
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

typedef struct tenon_pass {
  uint32_t struct_size;
  uint32_t phase;
  const char* axes;      // mesh axes that it defines, separated by spaces: "dp"
  const char* provides;  // space-separated words; each may be NULL
  const char* needs;
  const char* conflicts;
  tenon_code (*run)(const tenon_pass_config* config, tenon_graph* graph, tenon_error* error);
} tenon_pass;
TENON_SEAL(tenon_pass, run);

#ifdef __cplusplus
}
#endif
#endif
