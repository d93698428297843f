// parallel/large: cuts the optimizer state of large parameters over a mesh axis, usually a sub-axis whose
// ranks have fast links, and leaves that of small ones whole, whose update would take less time than its
// exchange. An example of a strategy in C11 that uses nothing but abi/.
//
// A strategy only says where values rest. That gradients are reduced to parts, parts updated, and parameters
// gathered again is the core's work, and so is the proof that nothing is forgotten.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tenon/draft/pass.h"
#include "tenon/plugin.h"

// Level 1 of storage: the optimizer's state is cut, gradients and parameters are whole.
#define STATE_ONLY 1u

// tenon_fill writes as much as the caller has room for.
static tenon_code fail(tenon_error* error, tenon_code code, const char* message) {
  tenon_error mine = {.struct_size = sizeof mine, .code = code};
  snprintf(mine.message, sizeof mine.message, "%s", message);
  tenon_fill(error, &mine);
  return code;
}

// The host has checked the options: each is there, of its type and within its limits.
static const tenon_option* option(const tenon_pass_config* config, const char* key) {
  for (uint32_t i = 0; i < config->num_options; ++i) {
    if (strcmp(config->options[i].key, key) == 0) return &config->options[i];
  }
  abort();
}

static int64_t elements(const tenon_value_info* value) {
  int64_t n = 1;
  for (uint32_t i = 0; i < value->ndim; ++i) n *= value->dims[i];
  return n;
}

static tenon_code run(const tenon_pass_config* config, tenon_graph* graph, tenon_error* error) {
  const tenon_graph_api* api = config->api;
  const char* axis = option(config, "axis")->s;
  const int64_t least = option(config, "elements")->i;
  if (api->axis_size(graph, axis) == 0) {
    return fail(error, TENON_E_ARGUMENT,
                "the mesh has no such axis: add it to mesh, or set axis to one of its");
  }
  const tenon_value_id* borrowed = NULL;
  const uint32_t count = api->values(graph, &borrowed);
  tenon_value_id* values = malloc((count > 0 ? count : 1) * sizeof *values);  // annotating ends the loan
  if (values == NULL) return fail(error, TENON_E_MEMORY, "out of memory");
  memcpy(values, borrowed, count * sizeof *values);
  tenon_code code = TENON_OK;
  for (uint32_t i = 0; i < count && code >= 0; ++i) {
    tenon_value_info value = {.struct_size = sizeof value};
    code = api->value(graph, values[i], &value, error);
    if (code < 0 || value.role != TENON_ROLE_PARAM || elements(&value) < least) continue;
    code = api->store(graph, values[i], STATE_ONLY, axis, NULL, error);
  }
  free(values);
  return code;
}

static const tenon_option_decl axis_option = {
    .struct_size = sizeof(tenon_option_decl),
    .kind = TENON_STRING,
    .name = "axis",
    .doc = "mesh axis over which state is cut",
    .fallback = "dp",
    .choices = NULL,
    .min = 1.0,
    .max = 0.0,
};
static const tenon_option_decl elements_option = {
    .struct_size = sizeof(tenon_option_decl),
    .kind = TENON_INT,
    .name = "elements",
    .doc = "parameters with at least so many elements are large",
    .fallback = "65536",
    .choices = NULL,
    .min = 1.0,
    .max = 1e15,
};
static const tenon_option_decl* const options[] = {&axis_option, &elements_option};

// Two strategies must not decide about one parameter: parallel/zero provides "zero".
static const tenon_pass pass = {sizeof(tenon_pass), TENON_PHASE_B, NULL, "large", "data", "zero", run};

static tenon_code init(const tenon_host* host, tenon_error* error) {
  (void)host;
  (void)error;
  return TENON_OK;
}

static void deinit(void) {}

static const void* get_interface(const char* id) { return strcmp(id, TENON_PASS) == 0 ? &pass : NULL; }

const tenon_plugin tenon_plugin_v0 = {
    .struct_size = sizeof(tenon_plugin),
    .abi_major = TENON_ABI_MAJOR,
    .abi_minor_built = TENON_ABI_MINOR,
    .abi_minor_required = TENON_ABI_OLDEST_MINOR,
    .id = "parallel/large",
    .version = "0.1.0",
    .doc = "Cuts the optimizer state of large parameters over a mesh axis",
    .options = options,
    .num_options = sizeof options / sizeof *options,
    .init = init,
    .deinit = deinit,
    .get_interface = get_interface,
};
