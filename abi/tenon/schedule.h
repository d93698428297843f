// tenon/schedule.h - the order of microbatches as rows. A pure function: no rank, clock or device.
#ifndef TENON_SCHEDULE_H
#define TENON_SCHEDULE_H

#include "base.h"
#include "host.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_SCHEDULE "tenon.schedule/1"

// What a row does to a microbatch at a stage. (uint32_t fields)
enum {
  TENON_ROW_FORWARD = 0,
  TENON_ROW_INPUT_GRAD = 1,   // backward with respect to the stage's input
  TENON_ROW_WEIGHT_GRAD = 2,  // backward with respect to its parameters
  TENON_ROW_BACKWARD = 3      // both, in one go
};

typedef struct tenon_row {  // Sealed.
  uint32_t kind;
  int32_t stage;
  int32_t microbatch;
  int32_t overlap;  // rows of one rank with equal ids > 0 run interleaved; 0: alone
} tenon_row;

typedef struct tenon_schedule_config {
  uint32_t struct_size;
  uint32_t num_options;
  const tenon_host* host;       // never NULL; valid for the call
  const tenon_option* options;  // all declared options, in order
  int32_t ranks;                // pipeline ranks
  int32_t stages;               // >= ranks, a multiple of it
  int32_t microbatches;
  uint32_t reserved;
} tenon_schedule_config;
TENON_SEAL(tenon_schedule_config, reserved);

typedef struct tenon_schedule {
  uint32_t struct_size;
  uint32_t reserved;
  // The pipeline rank that holds a stage. [thread-safe]
  int32_t (*owner)(const tenon_schedule_config* config, int32_t stage);
  // Calls emit(arg, rank, row) for the rows of each rank in their order. [thread-safe]
  tenon_code (*rows)(const tenon_schedule_config* config,
                     void (*emit)(void* arg, int32_t rank, const tenon_row* row), void* arg,
                     tenon_error* error);
} tenon_schedule;
TENON_SEAL(tenon_schedule, rows);

#ifdef __cplusplus
}
#endif
#endif
