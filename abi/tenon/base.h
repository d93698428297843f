// tenon/base.h - the vocabulary that every interface shares: codes, errors, options, shapes.
//
// Layout rules of the whole folder. They hold in both directions, so that a binary of an older minor and one
// of a newer one understand each other (tests/abi):
//   storage  An extensible struct begins with `struct_size`: how many bytes there are. Whoever OWNS the
//            storage sets it, whoever fills the rest. Nobody reads or writes behind it: TENON_HAS asks for
//            one field, tenon_fill reads or writes a whole struct. Never test a size for equality. It is a
//            multiple of 8, so that it ends inside no pointer: of a plugin another one is refused (A005), and
//            tenon_fill leaves out what is behind the last multiple.
//   growth   Fields, slots and enumerators are appended: never changed, moved or removed, nor is what they
//            mean. Zero in a field that was appended means as before, and so does its absence.
//   arrays   Of structs that may grow: arrays of pointers, so that the distance of two elements is nobody's.
//   sealed   Small plain values marked so carry no size, and never change.
//   padding  None at the end of a struct (TENON_SEAL): a field could hide inside an old size.
//   types    Fixed-width integers; enumerators are named, the fields that hold them are uint32_t.
//   flags    A bit that this host does not know is refused from a plugin that was built for its minor or an
//            older one, for there it is a mistake, and ignored from one that was built for a newer one.
//   tables   What cannot grow so gets a new interface id ("tenon.sink/2"); the host goes on serving the
//            old one.
//   drafts   In draft/ anything may change with any minor: host and plugin must have been built for the
//            same.
//
// Functions. Of a plugin's table none may be NULL, but where its comment says when it may: a table that lacks
// one is refused when it is loaded (A005). The host passes no NULL for an object, a config or a place to
// write to, unless a comment says so; an array of which there are 0 may be one. A callback that a function is
// given is called before the function returns, on the calling thread unless a comment says where else.
//
// Thread tags, one for each function (tests/abi/check_tags):
//   [any-thread]   On any thread, one call at a time on one object: the caller serialises.
//   [thread-safe]  On any thread, several at once, on one object too.
//   [rank-thread]  On the thread that executes the program of the object's rank.
//   [init-thread]  On the thread that loads plugins, before all other calls of this plugin or behind them.
// The ranks of a process may be threads, and a process may hold several runs: what objects of a plugin share
// with one another, they share between threads.
// C11 and C++20, LP64 little-endian.
#ifndef TENON_BASE_H
#define TENON_BASE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "dlpack.h"

#ifdef __cplusplus
#define TENON_STATIC_ASSERT(c, m) static_assert(c, m)
#define TENON_NOEXCEPT noexcept
extern "C" {
#else
#define TENON_STATIC_ASSERT(c, m) _Static_assert(c, m)
#define TENON_NOEXCEPT
#endif

// A minor only appends. A plugin names the one that it was built for and the oldest that it can do with
// (tenon/plugin.h); 0.2 is the oldest that a host accepts, for it broke with 0.1.
#define TENON_ABI_MAJOR 0u
#define TENON_ABI_MINOR 2u
#define TENON_ABI_OLDEST_MINOR 2u

#define TENON_END(T, f) (offsetof(T, f) + sizeof(((T*)0)->f))
// Whether a field is there; whether a slot is there and filled.
#define TENON_HAS(p, T, f) ((p)->struct_size >= TENON_END(T, f))
#define TENON_FN(p, T, f) (TENON_HAS(p, T, f) && (p)->f != NULL)
#define TENON_SEAL(T, last) TENON_STATIC_ASSERT(sizeof(T) == TENON_END(T, last), #T " has tail padding")

TENON_STATIC_ASSERT(sizeof(void*) == 8 && sizeof(long) == 8, "tenon is LP64 only");

// Copies one extensible struct into another of the same type, whichever of the two is older: no more than is
// there, in whole multiples of 8, and no more than there is room for. What `to` has beyond that is zeroed;
// its struct_size stays, for it is its owner's. So one answers a caller, and so one reads what a caller
// passes:
//   const tenon_kernel_info mine = {.struct_size = sizeof mine, ...};  tenon_fill(info, &mine);
//   tenon_comm_config mine = {.struct_size = sizeof mine};             tenon_fill(&mine, config);
// Does nothing where either is NULL.
static inline void tenon_fill(void* to, const void* from) {
  const size_t head = sizeof(uint32_t);
  uint32_t room = 0, there = 0;
  if (to == NULL || from == NULL) return;
  memcpy(&room, to, head);
  memcpy(&there, from, head);
  if (room <= head) return;
  const size_t both = there < room ? there : room, whole = both - both % 8;
  const size_t shared = whole > head ? whole - head : 0;
  memcpy((char*)to + head, (const char*)from + head, shared);
  memset((char*)to + head + shared, 0, room - head - shared);
}

// >= 0 is not an error. An unknown negative code is treated as TENON_E_INTERNAL, an unknown positive one, or
// one that a function does not name, too.
typedef int32_t tenon_code;
enum {
  TENON_OK = 0,
  TENON_PENDING = 1,
  TENON_DONE = 2,
  TENON_E_UNKNOWN = -1,
  TENON_E_ARGUMENT = -2,
  TENON_E_UNSUPPORTED = -3,
  TENON_E_STATE = -4,
  TENON_E_MEMORY = -5,
  TENON_E_IO = -6,
  TENON_E_TIMEOUT = -7,
  TENON_E_ABORTED = -8,
  TENON_E_PEER = -9,
  TENON_E_DEVICE = -10,
  TENON_E_VERSION = -11,
  TENON_E_INTERNAL = -12,
  TENON_E_RECIPE = -13,
  TENON_E_CHECKPOINT = -14
};

// Errors are values: the caller owns the storage, the callee writes into it. Nothing to free,
// nothing that can dangle. A function that takes one accepts NULL. On error the outputs of a call
// are untouched and nothing needs cleaning up. tenon_fill writes one.
typedef struct tenon_error {
  uint32_t struct_size;
  tenon_code code;
  int64_t vendor_code;  // errno, ucs_status_t, cudaError_t ...; 0 if none
  char vendor[32];      // which of them: "errno", "ucx", "cuda"; "" if none
  char message[464];    // UTF-8, NUL-terminated, cut if long: what happened, where, what to do
} tenon_error;
TENON_SEAL(tenon_error, message);

// Element types of the core. They map one to one to a DLDataType with lanes = 1. (uint32_t fields)
enum {
  TENON_F64 = 0,
  TENON_F32 = 1,
  TENON_BF16 = 2,
  TENON_F16 = 3,
  TENON_I64 = 4,
  TENON_I32 = 5,
  TENON_U8 = 6
};

// Dense row-major tensor type. Sealed. `dims` is borrowed for the call.
typedef struct tenon_shape {
  uint32_t dtype;
  uint32_t ndim;
  const int64_t* dims;
} tenon_shape;

// Kinds of option and attribute values. (uint32_t fields)
enum { TENON_BOOL = 0, TENON_INT = 1, TENON_FLOAT = 2, TENON_STRING = 3, TENON_STRINGS = 4 };

// One option as a plugin declares it. The host checks, fills defaults and generates messages, help
// and reference pages from this; a plugin never sees an unknown, missing or ill-typed option.
typedef struct tenon_option_decl {
  uint32_t struct_size;
  uint32_t kind;
  const char* name;
  const char* doc;
  const char* fallback;  // default value as text ("0.9", "true", ""); NULL: the option is required
  const char* choices;   // strings only: allowed values separated by '|'; NULL: any
  double min, max;       // numbers only, inclusive; no limits where min > max, or where they are absent
} tenon_option_decl;
TENON_SEAL(tenon_option_decl, max);

// One value: an option of a plugin (all of them, in the order of declaration) or an attribute of an
// op (looked up by key). Sealed. Borrowed for the call.
typedef struct tenon_option {
  const char* key;
  uint32_t kind;
  uint32_t count;           // STRINGS: length of list; else 0
  int64_t i;                // BOOL (0 or 1), INT
  double f;                 // FLOAT; INT as a double too
  const char* s;            // STRING; else NULL
  const char* const* list;  // STRINGS; else NULL
} tenon_option;

// CPU: `native` is NULL, and the calling thread is the stream. CUDA: cudaStream_t. Sealed.
typedef struct tenon_stream {
  DLDevice device;
  void* native;
} tenon_stream;

#ifdef __cplusplus
}
#endif
#endif
