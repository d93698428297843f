// tenon/embed.h - the API of libtenon.so: train under a loop of your own.
//
//   context   plugins, log, where things are         tenon_open .. tenon_close
//   run       one recipe: a model and its state      tenon_run_open .. tenon_run_close
//   tensors   parameters and optimizer state, whole  tenon_run_tensor, _read, _write, _export
//   check     a recipe without running it            tenon_check
//
// What the library does to the process: it starts threads (with all signals blocked) and, to evaluate a
// recipe in Lua, one child process that has ended when the call returns. It installs no signal handler,
// prints nothing, never exits and reads no environment variable (libraries that plugins link to may).
// While a run is opened or a recipe checked, plugins and the libraries under them are loaded;
// the dispositions of all signals are put back behind that, so set none on another thread meanwhile.
// Once loaded, the library and plugins stay until the process ends. Fork only to exec.
//
// Threads: tenon_run_abort and tenon_version are [thread-safe]: call them beside any other. All others are
// [any-thread]: call from any thread, but serialise the calls on one run (TENON_E_STATE, E028, where another
// thread is in one, or the log calls back), and tenon_open, tenon_close, tenon_check and the opening and
// closing of runs on one context. Calls on different runs may overlap. A run computes on threads of its own,
// in the default floating-point environment, whatever the caller's; a call returns when they are done. What
// opens or checks a recipe needs 192 KiB of the caller's stack (TENON_E_MEMORY, E029). The log is called on
// threads that are inside a call on its context, one line at a time, never later; it must not call this
// library, and must not throw.
//
// Errors: a negative tenon_code, and the text in `error` (may be NULL): "error[<code>]: <what>", the place,
// the fix. Text that does not fit is cut, and then goes to the log in full. On error the outputs are
// untouched. A NULL where none is allowed: TENON_E_ARGUMENT. Pointers that go in are borrowed for the
// call, strings are UTF-8 and NUL-terminated. Structs: set struct_size to their sizeof before the call, of
// those that come out too, tenon_error among them, without whose size no call begins (TENON_E_ARGUMENT). A
// program and a library of different minors understand each other: fields of options that the program does
// not know are as if zero, of results as many are filled as both know, and the rest is zeroed.
//
// Processes: where the ranks of a run are processes, every call on it but tenon_run_info, the three that look
// at tensors and tenon_run_abort is collective: all make the same calls in the same order, with equal
// arguments. One that fails for reasons of its own leaves the others waiting for as long as timeout_ns.
#ifndef TENON_EMBED_H
#define TENON_EMBED_H

#include "base.h"
#include "host.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_API __attribute__((visibility("default")))

typedef struct tenon_context tenon_context;
typedef struct tenon_run tenon_run;

// ---- the context ----------------------------------------------------------------------------------

// Zero but for struct_size: all defaults, and no log.
typedef struct tenon_options {
  uint32_t struct_size;
  uint32_t log_level;  // the most that is logged: TENON_LOG_ERROR (0) ... TENON_LOG_DEBUG
  // `source` is where the line comes from (a file, a plugin, a recipe), `line` is 0 if there is none. Both
  // texts are valid for the call. A plugin that serves several contexts logs to the first of them. May be
  // NULL: no log. [any-thread]
  void (*log)(void* user, uint32_t level, const char* source, uint32_t line, const char* message);
  void* log_user;
  // Folders of plugins, searched before `tenon` beside libtenon.so and the system's.
  const char* const* plugin_directories;
  uint32_t num_plugin_directories;
  int32_t threads;     // of each rank, its own included, at most 4096; 0: processors / ranks in this process
  const char* helper;  // the program tenon-recipe; NULL: where it is installed with libtenon.so
  const char* vocabulary;  // the folder that holds tenon/init.lua; NULL: likewise
} tenon_options;
TENON_SEAL(tenon_options, vocabulary);

// `options` may be NULL. Loads nothing yet: a missing helper shows when a recipe in Lua is opened.
// [any-thread]
TENON_API tenon_code tenon_open(const tenon_options* options, tenon_context** out, tenon_error* error);
// TENON_E_STATE while a run is open; then the context lives on. NULL is fine. [any-thread]
TENON_API tenon_code tenon_close(tenon_context* context, tenon_error* error);
// "0.1.0". Static. [thread-safe]
TENON_API const char* tenon_version(void);

// ---- a run ----------------------------------------------------------------------------------------

// For tenon_run_options.flags.
enum {
  TENON_RUN_NO_TRAINING = 1,  // parameters only, no gradients, no optimizer state: evaluate, logits
  TENON_RUN_CONNECT = 2       // rank 0 connects to a rendezvous that runs elsewhere, like all others
};

// Zero but for struct_size: all ranks of the recipe's mesh in this process.
//
// In one process (world 0) the ranks are threads: `virtual_ranks` of them, 0: as many as the recipe's mesh
// says, and 1 where it leaves that open. They communicate through comm/local, whatever the recipe names.
// In several (world >= 1) this process is one rank, and every process makes the same calls in the same
// order. Rank 0 serves the rendezvous at host:port while its run is open; the others connect, and wait
// for it as long as timeout_ns. The recipe's comm plugin connects the ranks.
typedef struct tenon_run_options {
  uint32_t struct_size;
  uint32_t flags;
  int32_t virtual_ranks;
  int32_t rank;
  int32_t world;
  uint32_t port;
  const char* host;       // numeric, or "localhost"; NULL: 127.0.0.1
  const uint8_t* secret;  // 32 random bytes that all ranks know, and nobody else; needed if world > 1
  const char* job;        // any text, the same on all ranks; NULL: "tenon"
  const char* data_root;  // relative data paths start here; NULL: the recipe's folder
  int64_t timeout_ns;     // of every wait for another rank; 0: 120 s
} tenon_run_options;
TENON_SEAL(tenon_run_options, timeout_ns);

// Evaluates a recipe (.lua, or .json already resolved) with `overrides` ("key=value", for its parameters;
// a path among them starts at the current folder), loads its plugins, compiles and verifies its programs,
// allocates, and initialises the parameters. `options` may be NULL. The recipe's sinks are checked but not
// used, its `save`, `eval` and `log` say nothing here: the host's loop decides. [any-thread]
TENON_API tenon_code tenon_run_open(tenon_context* context, const char* recipe, const char* const* overrides,
                                    uint32_t num_overrides, const tenon_run_options* options, tenon_run** out,
                                    tenon_error* error);
// The same from the text of a resolved recipe (docs/reference/resolved-recipe.md), `size` bytes. Where
// data_root is NULL, relative data paths start at the current folder. [any-thread]
TENON_API tenon_code tenon_run_open_json(tenon_context* context, const char* text, uint64_t size,
                                         const tenon_run_options* options, tenon_run** out,
                                         tenon_error* error);
// TENON_E_STATE while a view is exported (the error names it); then the run lives on. NULL is fine.
// [any-thread]
TENON_API tenon_code tenon_run_close(tenon_run* run, tenon_error* error);

typedef struct tenon_step_result {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t step;      // steps done, this one included
  int64_t tokens;    // that counted in the loss
  double loss;       // nats per token, over the whole batch
  double grad_norm;  // before clipping
  double lr;
  double seconds;
} tenon_step_result;
TENON_SEAL(tenon_step_result, seconds);

// One optimizer step. TENON_OK, or TENON_DONE if the recipe's last step was done before: then nothing
// happens and `result` is untouched. `result` may be NULL. TENON_E_STATE: a view is exported (the error
// names it), the run was opened without training, the loss is not finite (N001) or the optimizer is
// seen to have done nothing or to have made no number (N002; after both the step counts as not done and the
// parameters may not be finite: resume), a kernel left an output unwritten (N003: close the run), or an
// earlier failure. TENON_E_ABORTED, N002: a rank of another
// process saw that. After any other error the
// run can only be looked at and closed, or, if it was aborted, resumed. [any-thread]
TENON_API tenon_code tenon_run_step(tenon_run* run, tenon_step_result* result, tenon_error* error);

// Samples of the host's own for one step: those of all ranks, in the order in which the recipe's would be
// dealt out. Borrowed for the call.
typedef struct tenon_batch {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t samples;         // tenon_info.batch
  int64_t context;         // tenon_info.context
  const int32_t* tokens;   // [samples, context]: from 0 to below the model's vocabulary
  const int32_t* targets;  // [samples, context]: likewise, or -1, which does not count in the loss
} tenon_batch;
TENON_SEAL(tenon_batch, targets);

// As tenon_run_step, on these samples and not on the recipe's. It is a step like all others: it counts in
// steps_done and for the learning rate, and up to the recipe's last. The position in the recipe's data does
// not move: the next tenon_run_step takes the samples that it would have taken; checkpoints hold steps and
// position, and resuming restores both. For dropout the samples are numbered from 0. Every process passes the
// whole batch (E030 where they differ). TENON_E_ARGUMENT: counts that are not the run's, a token or target
// out of range; then, as with E030, nothing has happened. [any-thread]
TENON_API tenon_code tenon_run_step_on(tenon_run* run, const tenon_batch* batch, tenon_step_result* result,
                                       tenon_error* error);

// The learning rate of all steps from now on, until it is set again; NULL: that of the recipe's schedule for
// the step, as before. It is the host's and not the run's: no checkpoint holds it, resuming leaves it. The
// optimizer's groups scale it as they do the recipe's. TENON_E_ARGUMENT where `*lr` is negative or not
// finite; then, as where processes pass another one (E030), the rate stays. [any-thread]
TENON_API tenon_code tenon_run_set_lr(tenon_run* run, const double* lr, tenon_error* error);

// Ends the call that is in progress on this run: at the next instruction of each of its ranks, or in a wait
// for another rank or process; a plugin that reads data and a file that is being written are let finish. That
// call returns TENON_E_ABORTED (E031), those of other processes the error of a peer that has gone, as soon as
// they notice it and at the latest when timeout_ns is over. Then the run can be closed, and, if all its ranks
// are in this process, resumed, which opens them anew; else close it in all processes, open it again and
// resume. Where no call is in progress, or it ended just then, the next one that works on the run returns
// E031 instead; if none was in progress the run is as good as before. Returns at once. Not for signal
// handlers, nor while the run is being closed. [thread-safe]
TENON_API tenon_code tenon_run_abort(tenon_run* run, tenon_error* error);

typedef struct tenon_eval_result {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t tokens;
  double loss;  // nats per token
} tenon_eval_result;
TENON_SEAL(tenon_eval_result, loss);

// Mean loss over the recipe's eval.batches batches of the held-out data; changes nothing. TENON_E_STATE: it
// is not finite (N001), or an earlier failure. [any-thread]
TENON_API tenon_code tenon_run_eval(tenon_run* run, tenon_eval_result* result, tenon_error* error);

// Writes the checkpoint step-<N> into `directory`, which is made if missing; all older checkpoints stay
// sound if it fails. As many are kept as the recipe's save.keep says. [any-thread]
TENON_API tenon_code tenon_run_save(tenon_run* run, const char* directory, tenon_error* error);
// Loads the newest sound checkpoint of `directory`, whichever number of ranks saved it: parameters,
// optimizer state, steps done, position in the data. TENON_E_STATE while a view is exported. If there is
// none, or it is of another model or data, nothing has changed; if reading fails halfway, the run can
// only resume or be closed. [any-thread]
TENON_API tenon_code tenon_run_resume(tenon_run* run, const char* directory, tenon_error* error);

// Logits of the token that follows `tokens` (num_tokens of them, at most the recipe's context). `*count` is
// the capacity of `out` going in and the number of logits coming out; `out` NULL only asks for that number.
// TENON_E_ARGUMENT if they do not fit, or a token is none of the model's; TENON_E_STATE where one is NaN
// (N001). [any-thread]
TENON_API tenon_code tenon_run_logits(tenon_run* run, const int32_t* tokens, uint64_t num_tokens, double* out,
                                      uint64_t* count, tenon_error* error);

typedef struct tenon_info {
  uint32_t struct_size;
  int32_t rank;       // 0 in one process
  int32_t world;      // ranks
  uint32_t training;  // 1, or 0: opened without
  int64_t steps_done;
  int64_t total_steps;     // of the recipe
  int64_t batch;           // samples per step, over all ranks
  int64_t context;         // tokens per sample
  int64_t num_parameters;  // elements of all parameters of the model, whatever the mesh
  uint64_t num_param_tensors;
  uint64_t num_tensors;    // parameters, then optimizer state
  uint64_t planned_bytes;  // of memory, of rank 0 or of this process's
} tenon_info;
TENON_SEAL(tenon_info, planned_bytes);

// [any-thread]
TENON_API tenon_code tenon_run_info(const tenon_run* run, tenon_info* info, tenon_error* error);

// ---- tensors --------------------------------------------------------------------------------------
//
// Those of the whole model, whatever the mesh: they have the same names, in the same order, and the same
// shapes on one rank and on many.

// Name of tensor i: "wte.weight", "wte.weight/optimizer/adamw.exp_avg". Parameters come first. Owned by the
// run. NULL if there is no such tensor. [any-thread]
TENON_API const char* tenon_run_tensor_name(const tenon_run* run, uint64_t index);

typedef struct tenon_tensor_info {
  uint32_t struct_size;
  uint32_t is_state;    // 1: of the optimizer; 0: a parameter
  const char* name;     // both owned by the run
  const int64_t* dims;  // of the whole tensor: `ndim` of them; NULL where that is 0
  int32_t ndim;
  DLDataType dtype;
  uint64_t bytes;  // of the whole tensor
} tenon_tensor_info;
TENON_SEAL(tenon_tensor_info, bytes);

// TENON_E_ARGUMENT: no tensor has that name (E025). [any-thread]
TENON_API tenon_code tenon_run_tensor(const tenon_run* run, const char* name, tenon_tensor_info* info,
                                      tenon_error* error);
// Reads a whole tensor, whichever ranks hold parts of it, into memory of the host's: `into` has the dtype and
// dims that tenon_run_tensor tells, is on device kDLCPU, and dense and row-major (strides NULL, or those).
// Every process gets all of it. Costs one all-reduce of the whole tensor over all ranks, in pieces of 256
// KiB, and that much memory. TENON_E_ARGUMENT: no such tensor (E025), `into` does not fit (A010).
// TENON_E_STATE: the processes ask for different ones (E030), or an earlier failure; for all of these nothing
// has happened. After any other error `into` may be written in part, and the run is as behind a failed
// step. [any-thread]
TENON_API tenon_code tenon_run_read(tenon_run* run, const char* name, const DLTensor* into,
                                    tenon_error* error);
// Writes a whole tensor into every part and every copy that ranks hold of it: `from` as for tenon_run_read,
// unchanged and borrowed for the call, and equal in all processes (E030). Neither the steps done nor the
// position in the data change: a run that has another's parameters and optimizer state, and its number of
// steps, takes the other's next step. Values are taken as they are. Costs no communication but, between
// processes, a digest's. Errors as of tenon_run_read; and TENON_E_STATE while a view is exported (E020).
// [any-thread]
TENON_API tenon_code tenon_run_write(tenon_run* run, const char* name, const DLTensor* from,
                                     tenon_error* error);
// A view of a parameter or of optimizer state, in place: no copy, read-only, dense and row-major, flags
// DLPACK_FLAG_BITMASK_READ_ONLY. The caller ends it with out->deleter(out), on any thread, at any time.
// While it lives, steps, writing, resuming and closing are refused; evaluating, saving, logits, reading and
// further views are not. TENON_E_ARGUMENT: no tensor has that name. TENON_E_UNSUPPORTED: this rank holds a
// part of it only, or none (E026); tenon_run_read gives all of it. With virtual ranks, rank 0's. [any-thread]
TENON_API tenon_code tenon_run_export(tenon_run* run, const char* name, DLManagedTensorVersioned** out,
                                      tenon_error* error);

// ---- checking without running -----------------------------------------------------------------------

typedef struct tenon_check_result {
  uint32_t struct_size;
  int32_t ranks;
  int64_t programs;        // that were proved: of training, evaluation and logits, for each stage
  int64_t num_parameters;  // as in tenon_info
  int64_t samples;         // of the data, those that are held out among them
  uint64_t planned_bytes;  // of memory, of the rank that needs most
} tenon_check_result;
TENON_SEAL(tenon_check_result, planned_bytes);

// What tenon_run_open does before it allocates anything or meets anybody: evaluates the recipe, loads its
// plugins, opens and closes the data, compiles the programs of all ranks and proves them. Of `options` it
// reads virtual_ranks or world, data_root, and flags; secret and port may be missing. Errors as of
// tenon_run_open. `result` may be NULL. [any-thread]
TENON_API tenon_code tenon_check(tenon_context* context, const char* recipe, const char* const* overrides,
                                 uint32_t num_overrides, const tenon_run_options* options,
                                 tenon_check_result* result, tenon_error* error);
// The same of the text of a resolved recipe. [any-thread]
TENON_API tenon_code tenon_check_json(tenon_context* context, const char* text, uint64_t size,
                                      const tenon_run_options* options, tenon_check_result* result,
                                      tenon_error* error);

#ifdef __cplusplus
}
#endif
#endif
