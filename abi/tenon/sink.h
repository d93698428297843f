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

typedef struct tenon_metric {  // one number. Sealed.
  const char* name;            // "loss", "grad_norm", "lr", "step_ms", "tokens_per_s" ...
  double value;
} tenon_metric;

typedef struct tenon_record {
  uint32_t struct_size;
  uint32_t num_metrics;
  const char* event;  // "step", "eval", "save", "start", "end"
  int64_t step;
  int64_t attempt;  // 1, and one more after each resume
  const tenon_metric* metrics;
} tenon_record;
TENON_SEAL(tenon_record, metrics);

typedef struct tenon_sink {
  uint32_t struct_size;
  uint32_t reserved;
  // `directory` is the run's folder; it exists.
  tenon_code (*open)(const char* directory, const tenon_option* options, uint32_t num_options,
                     tenon_sink_state** out, tenon_error* error);
  void (*close)(tenon_sink_state* state);
  // What it wrote is visible to a reader when it returns. [any-thread]
  tenon_code (*write)(tenon_sink_state* state, const tenon_record* record, tenon_error* error);
} tenon_sink;
TENON_SEAL(tenon_sink, write);

#ifdef __cplusplus
}
#endif
#endif
