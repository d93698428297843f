// What `tenon plugins` knows of a file: looked at from a process of its own, for opening a library runs its
// constructors, and those may end the process.
#pragma once

#include "host/plugins/registry.h"

namespace tenon::cli {

// Never fails: what went wrong is the listing's error. A003 when the process died, or ended without an
// answer.
PluginListing probe(const PluginFile& file);

}  // namespace tenon::cli
