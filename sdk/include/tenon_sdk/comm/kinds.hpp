// tenon_sdk/comm/kinds.hpp - the names of comm operations, by TENON_COMM_*. Written by
// scripts/dev/generate-docs from core/graph/transfer.cpp; do not edit.
#pragma once

namespace tenon::comm {

// clang-format off
inline constexpr const char* kKindNames[] = {
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "all_to_all",
    "permute",
    "send",
    "recv",
    "barrier",  // no program has one
};
// clang-format on

}  // namespace tenon::comm
