// tenon/sink.h - where metrics and events go. Only the rank that owns the loss writes.
#ifndef TENON_SINK_H
#define TENON_SINK_H

#include "base.h"
#include "host.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_SINK "tenon.sink/1"

typedef struct tenon_sink_state tenon_sink_state;

typedef struct tenon_sink_config {
  uint32_t struct_size;
  uint32_t num_options;
  const tenon_host* host;       // never NULL; valid until close
  const tenon_option* options;  // all declared options, in order
  const char* directory;        // the run's folder; it exists
  const char* run;              // the run's id: the same after each resume
  const char* recipe;           // as JSON: docs/reference/resolved-recipe.md
} tenon_sink_config;
TENON_SEAL(tenon_sink_config, recipe);

typedef struct tenon_metric {  // one number
  uint32_t struct_size;
  uint32_t reserved;
  const char* name;  // "loss", "grad_norm", "lr", "step_ms", "tokens_per_s" ...
  double value;
} tenon_metric;
TENON_SEAL(tenon_metric, value);

typedef struct tenon_text {  // one word or more
  uint32_t struct_size;
  uint32_t reserved;
  const char* name;  // "path": of what was saved
  const char* text;
} tenon_text;
TENON_SEAL(tenon_text, text);

typedef struct tenon_record {
  uint32_t struct_size;
  uint32_t num_metrics;
  const char* event;  // "start", "step", "eval", "save", "memory", "overlap", "trace"; others may come
  int64_t step;
  int64_t attempt;  // 1, and one more after each resume
  const tenon_metric* const* metrics;
  const tenon_text* const* texts;
  uint32_t num_texts;
  uint32_t reserved;
} tenon_record;
TENON_SEAL(tenon_record, reserved);

typedef struct tenon_sink {
  uint32_t struct_size;
  uint32_t reserved;
  // [any-thread]
  tenon_code (*open)(const tenon_sink_config* config, tenon_sink_state** out, tenon_error* error);
  // [any-thread]
  void (*close)(tenon_sink_state* state);
  // What it wrote is visible to a reader when it returns. [any-thread]
  tenon_code (*write)(tenon_sink_state* state, const tenon_record* record, tenon_error* error);
} tenon_sink;
TENON_SEAL(tenon_sink, write);

#ifdef __cplusplus
}
#endif
#endif
