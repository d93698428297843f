// tenon/host.h - what the core offers to a plugin. Every table lives from init to deinit. Where an argument
// must not be NULL, one that is gets TENON_E_ARGUMENT, or NULL, or is ignored.
#ifndef TENON_HOST_H
#define TENON_HOST_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TENON_LOG_ERROR = 0, TENON_LOG_WARN = 1, TENON_LOG_INFO = 2, TENON_LOG_DEBUG = 3 };

// The root table. init() is given it, and so is every open(), in its config: objects need no globals.
typedef struct tenon_host tenon_host;
struct tenon_host {
  uint32_t struct_size;
  uint32_t abi_minor;
  void* ctx;
  // A further table by id, or NULL: an older host may not have it. It lives as long as the host.
  // [thread-safe]
  const void* (*get_interface)(const tenon_host* host, const char* id);
  // Whether a line of this level goes anywhere. [thread-safe]
  int32_t (*log_enabled)(const tenon_host* host, uint32_t level);
  // Not variadic, so that any language can call it. [thread-safe]
  void (*log)(const tenon_host* host, uint32_t level, const char* file, uint32_t line, const char* message);
};
TENON_SEAL(tenon_host, log);

// Threads: plugins own none. The pool has cores / (ranks on this host) threads per rank, the caller
// included; a call from inside a part runs the parts in order on the calling thread.
#define TENON_HOST_PARALLEL "tenon.host.parallel/1"
typedef struct tenon_parallel tenon_parallel;
struct tenon_parallel {
  uint32_t struct_size;
  uint32_t reserved;
  void* ctx;
  // Calls fn(arg, part) once for each part in [0, parts) and returns when all are done. Which thread
  // runs which part is not determined: results must not depend on it. fn must not fail or throw.
  // [rank-thread] The pool is that of the calling rank.
  void (*parallel_for)(const tenon_parallel* self, int64_t parts, void (*fn)(void* arg, int64_t part),
                       void* arg);
  // Threads that parallel_for uses from this thread (1 or more). For cutting work only where the
  // result does not depend on the cut. [thread-safe]
  int32_t (*num_threads)(const tenon_parallel* self);
};
TENON_SEAL(tenon_parallel, num_threads);

// Memory outside the planned arena, counted and reported. Aligned to 64 bytes.
#define TENON_HOST_MEMORY "tenon.host.memory/1"
typedef struct tenon_memory tenon_memory;
struct tenon_memory {
  uint32_t struct_size;
  uint32_t reserved;
  void* ctx;
  // NULL when there is none. [thread-safe]
  void* (*alloc)(const tenon_memory* self, uint64_t bytes);
  // NULL is a no-op. [thread-safe]
  void (*free)(const tenon_memory* self, void* pointer);
};
TENON_SEAL(tenon_memory, free);

// Small values that ranks exchange while they start: addresses, ids. Passed to comm domains.
#define TENON_HOST_RENDEZVOUS "tenon.host.rendezvous/1"
typedef struct tenon_rendezvous tenon_rendezvous;
struct tenon_rendezvous {
  uint32_t struct_size;
  uint32_t reserved;
  void* ctx;
  // A key is set once; setting it again with another value is an error. [thread-safe]
  tenon_code (*set)(const tenon_rendezvous* self, const char* key, const void* value, uint64_t size,
                    tenon_error* error);
  // Waits until the key is set. `*size` is the capacity of `value` going in and the size of the
  // value coming out; TENON_E_ARGUMENT when it does not fit. TENON_E_TIMEOUT after timeout_ns
  // (< 0: no limit). [thread-safe]
  tenon_code (*get)(const tenon_rendezvous* self, const char* key, void* value, uint64_t* size,
                    int64_t timeout_ns, tenon_error* error);
};
TENON_SEAL(tenon_rendezvous, get);

#ifdef __cplusplus
}
#endif
#endif
