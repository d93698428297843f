// The train programs of a combination of strategies, compiled with the real plugins.
#pragma once

#include "combination.hpp"
#include "virtual_run.hpp"

namespace tenon::test {

// `change`: of what is usual here, small buckets.
Compiled compile_document(const Json& document, int world,
                          const std::function<void(CompileOptions&)>& change = {});

// Compiled once for all tests of a process.
const Compiled& compiled_of(const Combination& c);
inline const std::vector<Program>& programs_of(const Combination& c) { return compiled_of(c).programs; }

}  // namespace tenon::test
