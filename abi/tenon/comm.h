// tenon/comm.h - communication: domains, groups, prepared collectives, two waits.
//
// A domain is one process's (or virtual rank's) membership in the world: transport, memory, progress.
// A group is an ordered list of world ranks. A plan is one prepared operation (or several, started as
// one), made outside the step and started every step. One plan has at most one start in flight.
#ifndef TENON_COMM_H
#define TENON_COMM_H

#include "base.h"
#include "host.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_COMM "tenon.comm/1"

typedef struct tenon_comm_domain tenon_comm_domain;
typedef struct tenon_comm_group tenon_comm_group;
typedef struct tenon_comm_plan tenon_comm_plan;

enum {
  TENON_COMM_ALL_REDUCE = 0,      // dst[count] = reduce over members of src[count]
  TENON_COMM_REDUCE_SCATTER = 1,  // dst[counts[me]] = my part of the reduction of src[sum counts]
  TENON_COMM_ALL_GATHER = 2,      // dst[sum counts] = concatenation of every member's src[counts[i]]
  TENON_COMM_BROADCAST = 3,       // dst[count] = src[count] of member `peer`
  TENON_COMM_ALL_TO_ALL = 4,      // part i of src goes to member i; dst gets theirs in member order
  TENON_COMM_PERMUTE = 5,         // my src[count] goes to member (me + shift) mod n; dst gets (me - shift)'s
  TENON_COMM_SEND = 6,            // src[count] to member `peer`
  TENON_COMM_RECV = 7,            // dst[count] from member `peer`
  TENON_COMM_BARRIER = 8
};
enum { TENON_SUM = 0, TENON_MAX = 1, TENON_MIN = 2 };

enum {
  // Every reduction adds the members' values in one fixed binary tree over member indices: for n
  // members, tree(lo, n) = n == 1 ? x[lo] : tree(lo, p) + tree(lo + p, n - p), where p is the largest
  // power of two below n; bf16 and f16 as f32 in all of the tree, rounded once. Without this flag the order
  // is the plugin's own (but the same on each run).
  TENON_COMM_TREE_ORDER = 1u,
  // All ranks of a domain live in one process (virtual ranks).
  TENON_COMM_IN_PROCESS = 2u
};

typedef struct tenon_comm_config {
  uint32_t struct_size;
  uint32_t num_options;
  const tenon_host* host;       // never NULL; valid until domain_close
  const tenon_option* options;  // all declared options, in order
  int32_t rank;
  int32_t world;
  DLDevice device;
  int64_t timeout_ns;                  // for opening and for every wait without its own; < 0: none
  const tenon_rendezvous* rendezvous;  // never NULL; borrowed until domain_close
} tenon_comm_config;
TENON_SEAL(tenon_comm_config, rendezvous);

// Counts are in elements. Memory is borrowed until the plan is released.
typedef struct tenon_comm_op {
  uint32_t struct_size;
  uint32_t kind;
  uint32_t reduce;
  uint32_t dtype;
  const void* src;
  void* dst;               // may equal src for all_reduce and broadcast; else must not overlap it
  uint64_t count;          // see the kinds; 0 is legal
  const uint64_t* counts;  // reduce_scatter, all_gather: one per member (uneven, may be 0);
                           // all_to_all: n sent to each member, then n received from each
  int32_t peer;            // broadcast: root; send, recv: the other member; permute: shift
  uint32_t reserved;
} tenon_comm_op;
TENON_SEAL(tenon_comm_op, reserved);

typedef struct tenon_comm {
  uint32_t struct_size;
  uint32_t flags;
  // Collective over the world; blocks until every rank has come or timeout_ns is over. [any-thread]
  tenon_code (*domain_open)(const tenon_comm_config* config, tenon_comm_domain** out, tenon_error* error);
  // Waits for nobody. Its groups and plans must have been released. NULL is a no-op. [any-thread]
  void (*domain_close)(tenon_comm_domain* domain);
  // Memory that peers may reach, aligned to 64 bytes, zeroed. src and dst need not lie in it, but what
  // does is faster. `alloc` may be collective: every rank calls it in the same order. [any-thread]
  tenon_code (*alloc)(tenon_comm_domain* domain, uint64_t bytes, void** out, tenon_error* error);
  // No plan uses it any more. [any-thread]
  void (*free)(tenon_comm_domain* domain, void* pointer);
  // `members` are world ranks, this one among them, in the same order everywhere. Collective over the
  // members. Cheap. [any-thread]
  tenon_code (*group_open)(tenon_comm_domain* domain, const int32_t* members, uint32_t num_members,
                           tenon_comm_group** out, tenon_error* error);
  // Its plans must have been released. [any-thread]
  void (*group_close)(tenon_comm_group* group);
  // Outside the step; may allocate. Members prepare matching operations in the same order.
  // TENON_E_UNSUPPORTED for a kind or dtype it cannot do. [any-thread]
  tenon_code (*prepare)(tenon_comm_group* group, const tenon_comm_op* const* ops, uint32_t num_ops,
                        tenon_comm_plan** out, tenon_error* error);
  // Starts the plan after what is already on the stream. Allocates nothing and never blocks on peers.
  // Plans of one group start in the same order on every member. [rank-thread]
  tenon_code (*start)(tenon_comm_plan* plan, const tenon_stream* stream, tenon_error* error);
  // TENON_OK: done, that is, my result is ready AND no peer reads my source any more. TENON_PENDING,
  // or the error (sticky). [rank-thread]
  tenon_code (*test)(tenon_comm_plan* plan, tenon_error* error);
  // Blocks the calling THREAD until done. timeout_ns < 0: that of the config. [rank-thread]
  tenon_code (*wait_host)(tenon_comm_plan* plan, int64_t timeout_ns, tenon_error* error);
  // Orders the STREAM after the plan; the host does not wait. CPU: the same as wait_host. [rank-thread]
  tenon_code (*wait_stream)(tenon_comm_plan* plan, const tenon_stream* stream, tenon_error* error);
  // Ends all that is in flight in this domain with TENON_E_ABORTED, now and later. Never blocks; legal
  // at any time, from any thread. [thread-safe]
  void (*abort)(tenon_comm_domain* domain);
  // A plan in flight is waited for first, unless aborted. NULL is a no-op. [any-thread]
  void (*release)(tenon_comm_plan* plan);
} tenon_comm;
TENON_SEAL(tenon_comm, release);

#ifdef __cplusplus
}
#endif
#endif
