// tenon/plugin.h - the one object that a plugin exports. A plugin links to nothing of ours.
#ifndef TENON_PLUGIN_H
#define TENON_PLUGIN_H

#include "base.h"
#include "host.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_EXPORT __attribute__((visibility("default")))

// Read before any function of the plugin has run. The major is part of the symbol's name.
typedef struct tenon_plugin {
  uint32_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor_built;  // of the headers it was compiled with: TENON_ABI_OLDEST_MINOR or newer
  // The oldest host that it can do with, at most the one above (A005): TENON_ABI_OLDEST_MINOR, but where it
  // needs what a later minor appended.
  uint32_t abi_minor_required;
  const char* id;  // "<kind>/<name>": "optimizer/adamw"; equals its file's name
  const char* version;
  const char* doc;  // one line: what it does
  // Options of this plugin, declared once.
  const tenon_option_decl* const* options;
  uint64_t num_options;
  // Fast: no devices, threads, files or network. May be called again after deinit. [init-thread]
  tenon_code (*init)(const tenon_host* host, tenon_error* error);
  // Behind it there is no host any more. All that was opened has been closed. [init-thread]
  void (*deinit)(void);
  // The table for an id such as TENON_COMM, or NULL. Lives as long as the library. [thread-safe]
  const void* (*get_interface)(const char* id);
} tenon_plugin;
TENON_SEAL(tenon_plugin, get_interface);

// The only exported symbol.
TENON_EXPORT extern const tenon_plugin tenon_plugin_v0;

#ifdef __cplusplus
}
#endif
#endif
