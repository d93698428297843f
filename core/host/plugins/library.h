// One shared library, opened and checked: everything that is verified before a plugin function runs.
#pragma once

#include <mutex>
#include <string>

#include "base/options.h"
#include "base/result.h"
#include "tenon/plugin.h"

namespace tenon {

// Loading, handlers of signals and whether a plugin has been initialised belong to the process, not to
// a registry. Whoever loads, initialises or ends a plugin holds this.
std::mutex& loading_lock();

// Opens the file (NOW, LOCAL, NODELETE: it is never unloaded) and checks what it exports. `id` is the
// plugin that is asked for, "" for any. Puts signal handlers back. Needs loading_lock(). Calls no
// function of the plugin; constructors of the file and of what it links run.
// Errors, with the path as place:
//   A001 an ABI version that does not fit    A002 no such file    A003 the system's loader refuses it
//   A004 not a plugin           A005 malformed: an id that is not the one asked for, a field missing
Result<const tenon_plugin*> open_library(const std::string& path, const std::string& id);

// The checks of open_library on a symbol that has been found. Reads only what struct_size says is there.
Status check_plugin(const tenon_plugin& plugin, const std::string& path, const std::string& id);

// Of a plugin that has passed the checks.
Declarations declared_options(const tenon_plugin& plugin);

// "<kind>/<name>", each of lower-case letters, digits, '_' and, in the name, '-'.
bool is_plugin_id(std::string_view text);
// "optimizer/adamw" -> "libtenon-optimizer-adamw.so", and back ("" when it is no such name).
std::string library_name(const std::string& id);
std::string id_of_library(const std::string& file_name);

}  // namespace tenon
