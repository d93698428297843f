// The lies that a plugin may tell of itself, each with what must be said of it. liar.cpp tells them,
// lies_test.cpp listens.
#pragma once

namespace tenon::lies {

struct Lie {
  const char* kind;            // of the plugin that tells it
  const char* name;            // the plugin is "<kind>/<name>"
  const char* code;            // of the error
  const char* words;           // that it must have
  const char* verb = "train";  // which command asks for it: train, or sample of what was trained
};

inline constexpr Lie kLies[] = {
    // What tenon_plugin says.
    {"sink", "struct-size-small", "A005", "struct_size 8 leaves no room for a version"},
    {"sink", "struct-size-cut", "A005",
     "slot 'init' of tenon_plugin is missing: struct_size 56 ends before it"},
    {"sink", "struct-size-inside", "A005", "struct_size 68 ends inside a member"},
    {"sink", "built-older", "A001", "needs ABI 0.1 (built with 0.1)"},
    {"sink", "required-newer", "A001", "needs ABI 0.99 (built with 0.99)"},
    {"sink", "required-above-built", "A005", "abi_minor_required 3 is above abi_minor_built 2"},
    {"sink", "another-id", "A005", "the file holds plugin 'sink/other', not 'sink/another-id'"},
    {"sink", "id-null", "A005", "slot 'id' of tenon_plugin is NULL"},
    {"sink", "version-null", "A005", "slot 'version' of tenon_plugin is NULL"},
    {"sink", "doc-null", "A005", "slot 'doc' of tenon_plugin is NULL"},
    {"sink", "doc-endless", "A005", "'doc' of tenon_plugin is no text"},
    {"sink", "doc-not-utf8", "A005", "'doc' of tenon_plugin is no text"},
    {"sink", "init-null", "A005", "slot 'init' of tenon_plugin is NULL"},
    {"sink", "deinit-null", "A005", "slot 'deinit' of tenon_plugin is NULL"},
    {"sink", "get-interface-null", "A005", "slot 'get_interface' of tenon_plugin is NULL"},
    {"sink", "no-interface", "A007", "does not implement tenon.sink/1"},
    // Options.
    {"sink", "options-null", "A005", "slot 'options' of tenon_plugin is NULL"},
    {"sink", "options-many", "A005", "1099511627776 option declarations, more than 1000"},
    {"sink", "option-null", "A005", "option declaration 0 is NULL"},
    {"sink", "option-size", "A005", "option declaration 0 has struct_size 4"},
    {"sink", "option-size-inside", "A005", "option declaration 0 has struct_size 28, which ends inside"},
    {"sink", "option-name-null", "A005", "option declaration 0 has no name"},
    {"sink", "option-name-twice", "A005", "option declaration 1 'file' is declared twice"},
    {"sink", "option-doc-endless", "A005", "'file' has a doc that is no text"},
    {"sink", "option-kind", "A005", "'file' has unknown kind 9"},
    {"sink", "option-default", "A005", "'file' has default 'much', which is not a number"},
    // Tables.
    {"sink", "table-size", "A005", "table tenon.sink/1 has struct_size 4294967295, which no table has"},
    {"sink", "table-size-inside", "A005", "table tenon.sink/1 has struct_size 28, which no table has"},
    {"sink", "slot-null", "A005", "slot 'write' of tenon.sink/1 is NULL"},
    {"sink", "open-null", "A012", "said that it succeeded, and gave NULL"},
    {"comm", "flags", "A005", "tenon.comm/1 has flags 0x83, of which 0x80 are unknown"},
    {"data", "encode-alone", "A005", "tenon.data/1 has encode without decode"},
    {"kernels", "device", "A005", "kernels/device works on device type 2"},
    {"optimizer", "device", "A005", "optimizer/device works on device type 2"},
    {"optimizer", "device-unknown", "A005",
     "tenon.optimizer/1 is for device type 77, which DLPack does not know"},
    {"parallel", "phase", "A005", "tenon.pass/1 has phase 7, which none is"},
    {"parallel", "needs-not-utf8", "A005", "tenon.pass/1 has 'needs' that is no text"},
    {"parallel", "draft", "A001", "tenon.pass/1 is a draft, and the plugin was built for ABI 0.99"},
    // State of an optimizer.
    {"optimizer", "slots-null", "A005", "2 slots, and NULL where they should be"},
    {"optimizer", "slots-many", "A005", "4294967295 slots, more than 64"},
    {"optimizer", "slot-null", "A005", "entry 1 of the slots is NULL"},
    {"optimizer", "slot-size", "A005", "slot 0 has struct_size 0, which leaves no room for a name"},
    {"optimizer", "slot-size-inside", "A005", "slot 0 has struct_size 12, which ends inside a member"},
    {"optimizer", "slot-name-null", "A005", "slot 0 has no name"},
    {"optimizer", "slot-name-empty", "A005", "slot 0 has the name '', which no checkpoint can hold"},
    {"optimizer", "slot-name-space", "A005", "slot 0 has the name 'exp avg', which no checkpoint can hold"},
    {"optimizer", "slot-name-slash", "A005", "slot 0 has the name 'exp/avg', which no checkpoint can hold"},
    {"optimizer", "slot-name-long", "A005", "which no checkpoint can hold"},
    {"optimizer", "slot-name-endless", "A005", "slot 0 has the name (no text"},
    {"optimizer", "slot-name-twice", "A005", "two slots have the name 'exp_avg'"},
    {"optimizer", "slot-dtype", "A005", "slot 'exp_avg' has dtype 99, which none is"},
    {"optimizer", "granule", "A005", "granule 9, which none is"},
    {"optimizer", "stats-many", "A005", "1000 statistics, more than 64"},
    {"optimizer", "stats-negative", "A005", "4294967295 statistics, more than 64"},
    {"optimizer", "stats-one-too-many", "A005", "65 statistics, more than 64"},
    {"optimizer", "stats-unsteady", "A005", "it says something else when it is asked again"},
    {"optimizer", "stats-alone", "A005", "1 statistics, and no slot 'stats' that computes them"},
    {"optimizer", "unsteady", "A005", "it says something else when it is asked again"},
    {"optimizer", "whole-info", "A005", "tenon_optimizer_info of 8 bytes was filled as if it were larger"},
    {"optimizer", "own-size", "A005", "or its struct_size was set"},
    {"optimizer", "describe-unknown-error", "A012", "code -99"},
    {"optimizer", "describe-unknown-success", "A012", "answered 5, which is no code"},
    {"optimizer", "open-null", "A012", "said that it succeeded, and gave NULL"},
    // Fields of data.
    {"data", "fields-null", "A005", "2 fields, and NULL where they should be"},
    {"data", "fields-many", "A005", "4294967295 fields, more than 64"},
    {"data", "fields-none", "D002", "offers no field 'tokens'"},
    {"data", "field-positions", "D002", "offers a field 'positions', which is the core's own input"},
    {"data", "field-null", "A005", "entry 0 of the fields is NULL"},
    {"data", "field-size", "A005", "field 0 has struct_size 16, which leaves no room for a shape"},
    {"data", "field-size-inside", "A005", "field 0 has struct_size 36, which ends inside a member"},
    {"data", "field-name-null", "A005", "field 0 has no name"},
    {"data", "field-name-not-utf8", "A005", "field 0 has the name (no text"},
    {"data", "field-name-twice", "A005", "two fields have the name 'tokens'"},
    {"data", "field-dtype", "A005", "field 'tokens' has dtype 99, which none is"},
    {"data", "field-dims-null", "A005", "field 'tokens' has 1 dims, and NULL where they should be"},
    {"data", "field-ndim", "A005", "field 'tokens' has 4294967295 dims, more than 8"},
    {"data", "field-dim-negative", "A005", "field 'tokens' has a dim of size -5"},
    {"data", "field-dim-huge", "A005", "field 'tokens' has more than 1099511627776 elements in a sample"},
    {"data", "field-limit", "A005", "field 'tokens' has the limit -1"},
    {"data", "field-for-no-use", "A005", "samples of field 'more' have 4398046511104 bytes each"},
    {"data", "samples-negative", "A005", "-3 samples"},
    {"data", "digest-zero", "A005", "the digest is all zero"},
    {"data", "digest-random", "A005", "it says something else when it is asked again"},
    {"data", "whole-info", "A005", "tenon_data_info of 8 bytes was filled as if it were larger"},
    {"data", "open-null", "A012", "said that it succeeded, and gave NULL"},
    // What training never asks for.
    {"data", "encode-need", "D007", "encode: it needs 18446744073709551615 entries", "sample"},
    {"data", "encode-needs-ever-more", "D007", "encode: it needs", "sample"},
    {"data", "encode-token", "D007", "encode: token 1000, where 0 to 255 are", "sample"},
    {"data", "encode-token-negative", "D007", "encode: token -1, where 0 to 255 are", "sample"},
    {"data", "encode-code", "A012", "answered 77, which is no code", "sample"},
    {"data", "decode-need", "D007", "decode: it needs 18446744073709551615 entries", "sample"},
    // Kernels.
    {"kernels", "kernel-flags", "A005", "flags 0x81, of which 0x80 are unknown"},
    {"kernels", "workspace", "A005", "18446744073709551615 bytes of workspace"},
    {"kernels", "private", "A005", "18446744073709551615 bytes of private memory"},
    {"kernels", "seconds", "A005", "takes -1 seconds"},
    {"kernels", "unsteady", "A005", "it says something else when it is asked again"},
    {"kernels", "fusion-flags", "A005", "flags 0x81, of which 0x80 are unknown"},
    {"kernels", "fusion-code", "A012", "answered 5, which is no code"},
    {"kernels", "whole-info", "A005", "tenon_kernel_info of 8 bytes was filled as if it were larger"},
    {"kernels", "open-null", "A012", "said that it succeeded, and gave NULL"},
    {"kernels", "prepare-null", "A012", "said that it succeeded, and gave NULL"},
    {"kernels", "alloc-null", "A012", "said that it succeeded, and gave NULL"},
    {"kernels", "alloc-unaligned", "A005", "memory that is not aligned to 64 bytes"},
    // Communication, of two virtual ranks.
    {"comm", "domain-null", "A012", "said that it succeeded, and gave NULL"},
    {"comm", "group-null", "A012", "said that it succeeded, and gave NULL"},
    {"comm", "plan-null", "A012", "said that it succeeded, and gave NULL"},
    {"comm", "alloc-unaligned", "A005", "memory that is not aligned to 64 bytes"},
    // What a pass says of the graph.
    {"parallel", "stage-huge", "P003", "stage 2147483648, which none of"},
    {"parallel", "stage-last", "P003", "stage 4294967295, which none of"},
    {"parallel", "stage-many", "P003", "stage 100000, which none of"},
    {"parallel", "stage-op", "P003", "no such op"},
    {"parallel", "stage-no-op", "P003", "no such op"},
    {"parallel", "level", "P003", "level 9 of storage: 0 to 3 exist"},
    {"parallel", "kind", "P003", "no op kind 'plus'"},
    {"parallel", "kind-null", "P003", "'kind' is NULL"},
    {"parallel", "dim", "P003", "has no dim 77"},
    {"parallel", "value", "P003", "no such value"},
    {"parallel", "axis-null", "P003", "'axis' is NULL"},
    {"parallel", "graph-null", "P003", "'graph' is NULL"},
    {"parallel", "split", "P003", "axis 'dp' split behind -4 ranks"},
    {"parallel", "answer", "P003", "answered 5, which is no code"},
    // A schedule, of two stages.
    {"schedule", "row-null", "A005", "it emitted NULL for a row"},
    {"schedule", "row-kind", "S003", "kind 255, which none is (stage 0"},
    {"schedule", "rows-many", "S005", "F0.0 is done by"},
    {"schedule", "row-rank", "S003", "a row of rank 7"},
    {"schedule", "owner", "S00", "schedule/owner"},
    // Nothing is wrong with this one.
    {"sink", "none", "", ""},
};

// What data may hold that declares no bound: found in the first batch.
inline constexpr Lie kBatchLies[] = {
    {"data", "targets-unwritten", "D007", "left value 0 of field 'targets' unwritten"},
    {"data", "target-below", "D007", "gave -2 as value 3 of field 'targets', whose values are -1 to 255"},
    {"data", "target-beyond", "D007", "gave 256 as value 3 of field 'targets', whose values are -1 to 255"},
    {"data", "token-below", "D007", "gave -1 as value 3 of field 'tokens', whose values are 0 to 255"},
    {"data", "token-beyond", "D007", "gave 256 as value 3 of field 'tokens', whose values are 0 to 255"},
};

// Of a front end, told in the process where recipes are evaluated.
inline constexpr Lie kFrontendLies[] = {
    {"frontend", "init-fails", "A006", "init of 'frontend/lua' failed: no Lua today"},
    {"frontend", "init-fails-there", "R017", "no Lua there"},
    {"frontend", "evaluate-null", "A005", "slot 'evaluate' of tenon.frontend/1 is NULL"},
    {"frontend", "answer", "R017", "evaluate answered 5, which is no code of this call"},
    {"frontend", "emits-never", "R017", "emitted 0 documents, and not one"},
    {"frontend", "emits-twice", "R017", "emitted 2 documents, and not one"},
    {"frontend", "emits-null", "R017", "ended in evaluate without an answer"},
    {"frontend", "emits-nothing", "R017", "ended in evaluate without an answer"},
    {"frontend", "damaged", "R017", "its answer is damaged"},
    {"frontend", "not-utf8", "R017", "its answer is damaged"},
    {"frontend", "a-list", "R017", "its answer is incomplete"},
    {"frontend", "no-provenance", "R017", "its answer is incomplete"},
    {"frontend", "a-place-that-is-none", "R017", "its answer is incomplete"},
    {"frontend", "recipe-is-a-list", "R017", "its answer is incomplete"},
    {"frontend", "error-without-words", "R017", "its answer is incomplete"},
    {"frontend", "error-of-no-code", "R017", "its answer is incomplete"},
    // As a recipe may be wrong too.
    {"frontend", "steps", "R0", "steps"},
    // Nothing is wrong with these.
    {"frontend", "none", "", ""},
    {"frontend", "keeps-host", "", ""},
};

}  // namespace tenon::lies
