// tenon/frontend.h - a recipe in, a resolved recipe (canonical JSON, docs/reference/resolved-recipe.md)
// out. Runs only inside the helper executable, which limits its memory and time, so a front end need
// not defend the process that embeds Tenon: each evaluation is in a process of its own, which calls init,
// evaluate once, and deinit.
#ifndef TENON_FRONTEND_H
#define TENON_FRONTEND_H

#include "base.h"
#include "host.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_FRONTEND "tenon.frontend/1"

typedef struct tenon_override {  // key=value from the command line. Sealed.
  const char* key;
  const char* value;
} tenon_override;

typedef struct tenon_frontend_config {
  uint32_t struct_size;
  uint32_t num_overrides;
  // Never NULL; the one that init was given. It logs, and has no other table: there are neither threads nor
  // memory to be counted.
  const tenon_host* host;
  const char* path;     // of the recipe
  const char* library;  // folder of the vocabulary (scripts/): require "tenon" reads it
  const tenon_override* overrides;
} tenon_frontend_config;
TENON_SEAL(tenon_frontend_config, overrides);

typedef struct tenon_frontend {
  uint32_t struct_size;
  uint32_t reserved;
  // Calls emit(arg, json, size) once on success, with the document
  //   {"recipe": <resolved recipe>, "provenance": {"<JSON pointer>": "file:line:column", ...},
  //    "parameters": [{"name", "kind", "default", "doc", ...}]}
  // and on a mistake in the recipe once with
  //   {"error": {"code": "R002", "file", "line", "column", "message", "hint", "source"}}.
  // Returns an error only when it could not work at all. [any-thread]
  tenon_code (*evaluate)(const tenon_frontend_config* config,
                         void (*emit)(void* arg, const char* json, uint64_t size), void* arg,
                         tenon_error* error);
} tenon_frontend;
TENON_SEAL(tenon_frontend, evaluate);

#ifdef __cplusplus
}
#endif
#endif
