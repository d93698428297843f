// tenon/embed.h - the API of libtenon.so: train under a loop of your own.
//
//   context   plugins, log, where things are         tenon_open .. tenon_close
//   run       one recipe: a model and its state      tenon_run_open .. tenon_run_close
//
// What the library does to the process: it starts threads (with all signals blocked) and, to evaluate a
// recipe in Lua, one child process that has ended when the call returns. It installs no signal handler,
// prints nothing, never exits and reads no environment variable (libraries that plugins link to may).
// While tenon_run_open and tenon_run_open_json work, plugins and the libraries under them are loaded;
// the dispositions of all signals are put back behind that, so set none on another thread meanwhile.
// Once loaded, the library and plugins stay until the process ends. Fork only to exec.
//
// Threads: every function is [any-thread]: call from any thread, but serialise the calls on one run, and
// tenon_open, tenon_close and the opening and closing of runs on one context. Calls on different runs
// may overlap. A run computes on threads of its own, in the default floating-point environment, whatever
// the caller's; a call returns when they are done. The log is called on threads that are inside a call
// on its context, one line at a time, never later; it must not call this library, and must not throw.
//
// Errors: a negative tenon_code, and the text in `error` (may be NULL): "error[<code>]: <what>", the place,
// the fix. Text that does not fit is cut, and then goes to the log in full. On error the outputs are
// untouched. A NULL where none is allowed: TENON_E_ARGUMENT. Pointers that go in are borrowed for the
// call, strings are UTF-8 and NUL-terminated. Structs: set struct_size to their sizeof before the call, of
// those that come out too, tenon_error among them. A program and a library of different minors understand
// each other: fields of options that the program does not know are as if zero, of results as many are filled
// as both know, and the rest is zeroed.
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
  // texts are valid for the call. A plugin that serves several contexts logs to the first of them.
  void (*log)(void* user, uint32_t level, const char* source, uint32_t line, const char* message);
  void* log_user;
  // Folders of plugins, searched before `tenon` beside libtenon.so and the system's.
  const char* const* plugin_directories;
  uint32_t num_plugin_directories;
  int32_t threads;         // of each rank, its own included; 0: processors / ranks in this process
  const char* helper;      // the program tenon-recipe; NULL: where it is installed with libtenon.so
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
// names it), the run was opened without training, the loss is not finite (the step counts as not done,
// the parameters may not be finite either: resume), or an earlier failure. After any other error the run
// can only be read and closed. [any-thread]
TENON_API tenon_code tenon_run_step(tenon_run* run, tenon_step_result* result, tenon_error* error);

typedef struct tenon_eval_result {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t tokens;
  double loss;  // nats per token
} tenon_eval_result;
TENON_SEAL(tenon_eval_result, loss);

// Mean loss over the recipe's eval.batches batches of the held-out data; changes nothing. [any-thread]
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
// TENON_E_ARGUMENT if they do not fit, or a token is none of the model's. [any-thread]
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
  int64_t num_parameters;  // elements of all parameters
  uint64_t num_param_tensors;
  uint64_t num_tensors;    // parameters, then optimizer state
  uint64_t planned_bytes;  // of memory, per rank
} tenon_info;
TENON_SEAL(tenon_info, planned_bytes);

// [any-thread]
TENON_API tenon_code tenon_run_info(const tenon_run* run, tenon_info* info, tenon_error* error);
// Name of tensor i: "wte.weight", "wte.weight/optimizer/adamw.exp_avg". Parameters come first. Owned by the
// run. NULL if there is no such tensor. [any-thread]
TENON_API const char* tenon_run_tensor_name(const tenon_run* run, uint64_t index);
// A view of a parameter or of optimizer state, in place: no copy, read-only, dense and row-major, flags
// DLPACK_FLAG_BITMASK_READ_ONLY. The caller ends it with out->deleter(out), on any thread, at any time.
// While it lives, steps, resuming and closing are refused; evaluating, saving, logits and further views
// are not. TENON_E_ARGUMENT: no tensor has that name. TENON_E_UNSUPPORTED: this rank holds a part of it
// only. With virtual ranks, rank 0's. [any-thread]
TENON_API tenon_code tenon_run_export(tenon_run* run, const char* name, DLManagedTensorVersioned** out,
                                      tenon_error* error);

#ifdef __cplusplus
}
#endif
#endif
