// tenon/kernels.h - memory, streams and one prepared kernel per op kind of one type of device.
// The op kinds, their operands and attributes are listed in docs/reference/ops.md.
#ifndef TENON_KERNELS_H
#define TENON_KERNELS_H

#include "base.h"
#include "host.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_KERNELS "tenon.kernels/1"

typedef struct tenon_device tenon_device;  // an opened device, with its caches
typedef struct tenon_kernel tenon_kernel;
typedef struct tenon_event tenon_event;

enum {
  // The bits of the result are a function of the operands' values and shapes alone: never of the
  // number of threads, of addresses or of what ran before.
  TENON_KERNEL_EXACT = 1u,
  // The outputs that docs/reference/ops.md marks (acc) already hold a value: add to it instead of overwriting
  // (gradient accumulation).
  TENON_KERNEL_ACCUMULATE = 2u
};

typedef struct tenon_kernels_config {
  uint32_t struct_size;
  uint32_t num_options;
  const tenon_host* host;       // never NULL; valid until close, for describe until it returns
  const tenon_option* options;  // all declared options, in order
  const char* profile;          // describe: the device model that is planned for; NULL: this machine's
  int32_t device_id;            // open: which device. CPU: 0
  uint32_t reserved;
} tenon_kernels_config;
TENON_SEAL(tenon_kernels_config, reserved);

typedef struct tenon_kernel_desc {
  uint32_t struct_size;
  uint32_t flags;
  const char* kind;
  const tenon_shape* inputs;
  const tenon_shape* outputs;
  const tenon_option* attrs;
  uint32_t num_inputs;
  uint32_t num_outputs;
  uint32_t num_attrs;
  int32_t inplace;  // index of the input whose memory output 0 shares; -1: none
} tenon_kernel_desc;
TENON_SEAL(tenon_kernel_desc, inplace);

typedef struct tenon_kernel_info {
  uint32_t struct_size;
  uint32_t flags;            // what it guarantees: TENON_KERNEL_EXACT
  uint64_t workspace_bytes;  // scratch that the planner gives to each call
  uint64_t private_bytes;    // memory that prepare() takes and keeps (packed weights)
  double seconds;            // estimate for one call; 0: unknown
} tenon_kernel_info;
TENON_SEAL(tenon_kernel_info, seconds);

typedef struct tenon_kernels {
  uint32_t struct_size;
  uint32_t device_type;  // DLDeviceType
  // Opens a device; each rank opens its own. [any-thread]
  tenon_code (*open)(const tenon_kernels_config* config, tenon_device** out, tenon_error* error);
  // Its kernels, memory, streams and events have been given back. [any-thread]
  void (*close)(tenon_device* device);
  // Pure: needs no device, so that a laptop can plan for a cluster. An upper bound that prepare() of a
  // device with these options must keep. TENON_E_UNSUPPORTED names what it cannot do: a plugin may have
  // kernels for a few kinds alone, and then stands beside another one in recipes. [thread-safe]
  tenon_code (*describe)(const tenon_kernels_config* config, const tenon_kernel_desc* desc,
                         tenon_kernel_info* info, tenon_error* error);
  // What describe() refuses, this refuses too. The descriptor is borrowed for the call. [any-thread]
  tenon_code (*prepare)(tenon_device* device, const tenon_kernel_desc* desc, tenon_kernel** out,
                        tenon_error* error);
  // Nothing of it runs any more. [any-thread]
  void (*release)(tenon_kernel* kernel);
  // `pointers`: inputs, outputs, then the workspace (NULL when none was asked for). Enqueues the work
  // and returns; CPU: returns when done. Allocates nothing. The memory may be of another plugin for the same
  // type of device: of the comm plugin, or of the kernels plugin that this one stands beside. [rank-thread]
  tenon_code (*enqueue)(tenon_kernel* kernel, const tenon_stream* stream, void* const* pointers,
                        tenon_error* error);
  // Device memory, aligned to 64 bytes, zeroed. [any-thread]
  tenon_code (*alloc)(tenon_device* device, uint64_t bytes, void** out, tenon_error* error);
  // [any-thread]
  void (*free)(tenon_device* device, void* pointer);
  // Between host and device memory, ordered on the stream; host memory stays valid until then. [rank-thread]
  tenon_code (*copy)(tenon_device* device, void* dst, const void* src, uint64_t bytes,
                     const tenon_stream* stream, tenon_error* error);
  // Streams and events. For the CPU this slot and all below may be NULL, for there the calling thread is the
  // stream. [any-thread]
  tenon_code (*stream_create)(tenon_device* device, tenon_stream* out, tenon_error* error);
  // [any-thread]
  void (*stream_destroy)(tenon_device* device, tenon_stream* stream);
  // [any-thread]
  tenon_code (*event_create)(tenon_device* device, tenon_event** out, tenon_error* error);
  // [any-thread]
  void (*event_destroy)(tenon_device* device, tenon_event* event);
  // The event happens when all that is on the stream now is done. [rank-thread]
  tenon_code (*event_record)(tenon_event* event, const tenon_stream* stream, tenon_error* error);
  // Orders the STREAM after the event; the host does not wait. [rank-thread]
  tenon_code (*event_wait_stream)(tenon_event* event, const tenon_stream* stream, tenon_error* error);
  // Blocks the calling THREAD until the event has happened. [rank-thread]
  tenon_code (*event_wait_host)(tenon_event* event, tenon_error* error);
  // TENON_OK or TENON_PENDING. [thread-safe]
  tenon_code (*event_query)(tenon_event* event, tenon_error* error);
} tenon_kernels;
TENON_SEAL(tenon_kernels, event_query);

#ifdef __cplusplus
}
#endif
#endif
