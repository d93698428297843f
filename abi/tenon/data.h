// tenon/data.h - samples by global index. Position in the data is therefore one number. The core owns
// shuffling, the split for validation, the cursor, prefetch, token counts and slicing over ranks.
#ifndef TENON_DATA_H
#define TENON_DATA_H

#include "base.h"
#include "host.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_DATA "tenon.data/1"

typedef struct tenon_dataset tenon_dataset;

typedef struct tenon_field {  // one tensor of a sample
  uint32_t struct_size;
  uint32_t reserved;
  // "tokens" and "targets", which every data plugin offers, both TENON_I32 of [context]: the model's inputs
  // of the same names. "positions", "samples" and "step" are the core's own inputs, and refused (D002): a
  // token's position is its place in the sample. Fields of other names are for a later core, and not used,
  // but read() writes them.
  const char* name;
  tenon_shape shape;  // of one sample; owned by the dataset
  // Every value is below this, and not below 0; of "targets" not below -1. 0: as many as the model has
  // tokens, or classes.
  int64_t limit;
} tenon_field;
TENON_SEAL(tenon_field, limit);

typedef struct tenon_data_info {
  uint32_t struct_size;
  uint32_t num_fields;
  int64_t num_samples;
  const tenon_field* const* fields;  // owned by the dataset
  // Of all that read() can answer. All ranks compare it, checkpoints keep it, and resuming with another one
  // is refused: so it differs where any value of any sample, their number or their order does, whether that
  // comes of other files, of other options or of a newer version of the plugin; and it is the same on every
  // host and at each opening, wherever the files lie and whenever they were written. `context` need not be
  // in it, nor what only encode and decode use: checkpoints keep the context too. All zero is refused.
  uint8_t digest[32];
} tenon_data_info;
TENON_SEAL(tenon_data_info, digest);

typedef struct tenon_data_config {
  uint32_t struct_size;
  uint32_t num_options;
  const tenon_host* host;       // never NULL; valid until close
  const tenon_option* options;  // all declared options, in order
  const char* root;             // relative paths start here; never NULL
  int64_t context;              // tokens per sample
} tenon_data_config;
TENON_SEAL(tenon_data_config, context);

typedef struct tenon_data {
  uint32_t struct_size;
  uint32_t reserved;
  // Each rank opens a dataset of its own. [any-thread]
  tenon_code (*open)(const tenon_data_config* config, tenon_dataset** out, tenon_error* error);
  // [any-thread]
  void (*close)(tenon_dataset* dataset);
  // The same each time. [any-thread]
  tenon_code (*describe)(tenon_dataset* dataset, tenon_data_info* info, tenon_error* error);
  // Writes field f of samples indices[0..n) into outs[f], dense and in order. Pure in the indices.
  // In "targets" a value of -1 marks padding, which counts neither in the loss nor in the token
  // count. [thread-safe]
  tenon_code (*read)(tenon_dataset* dataset, const int64_t* indices, uint64_t n, void* const* outs,
                     tenon_error* error);
  // May be NULL, as decode: both or neither. Text to tokens, for sampling. `*count` is the capacity going in
  // and the need coming out (the buffer is filled only if it suffices). [thread-safe]
  tenon_code (*encode)(tenon_dataset* dataset, const char* text, uint64_t size, int32_t* tokens,
                       uint64_t* count, tenon_error* error);
  // Tokens to text, as encode. [thread-safe]
  tenon_code (*decode)(tenon_dataset* dataset, const int32_t* tokens, uint64_t n, char* text, uint64_t* count,
                       tenon_error* error);
} tenon_data;
TENON_SEAL(tenon_data, decode);

#ifdef __cplusplus
}
#endif
#endif
