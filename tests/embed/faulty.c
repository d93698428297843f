// data/faulty: 64 samples of small numbers. Installs a signal handler when opened, as libraries below plugins
// do; logs each read; fails at one sample, on whichever rank has it, or when opened too often.
#include <signal.h>
#include <string.h>
#include <tenon/data.h>
#include <tenon/plugin.h>

enum { kNumSamples = 64, kVocabulary = 256 };

static const tenon_host* host_of_plugin;

struct tenon_dataset {
  int64_t context, fail_at;
  tenon_field tokens, targets;
  const tenon_field* fields[2];
};

static struct tenon_dataset datasets[8];
static int num_datasets;

static void on_signal(int number) { (void)number; }

static tenon_code open_data(const tenon_data_config* config, tenon_dataset** out, tenon_error* error) {
  const int at = __atomic_fetch_add(&num_datasets, 1, __ATOMIC_RELAXED);
  if (at >= 8 || at >= config->options[1].i) {
    if (error != NULL) strcpy(error->message, "too many datasets");
    return TENON_E_MEMORY;
  }
  struct tenon_dataset* data = &datasets[at];
  signal(SIGSEGV, on_signal);
  data->context = config->context;
  data->fail_at = config->options[0].i;
  const tenon_field tokens = {sizeof tokens, 0, "tokens", {TENON_I32, 1, &data->context}, kVocabulary};
  data->tokens = data->targets = tokens;
  data->targets.name = "targets";
  data->fields[0] = &data->tokens;
  data->fields[1] = &data->targets;
  *out = data;
  return TENON_OK;
}

static void close_data(tenon_dataset* data) { (void)data; }

static tenon_code describe(tenon_dataset* data, tenon_data_info* info, tenon_error* error) {
  (void)error;
  const tenon_data_info mine = {sizeof mine, 2, kNumSamples, data->fields, {1}};
  tenon_fill(info, &mine);
  return TENON_OK;
}

static tenon_code read_data(tenon_dataset* data, const int64_t* indices, uint64_t n, void* const* outs,
                            tenon_error* error) {
  host_of_plugin->log(host_of_plugin, TENON_LOG_INFO, "faulty", 0, "a read");
  for (uint64_t i = 0; i < n; ++i) {
    if (indices[i] == data->fail_at) {
      if (error != NULL) strcpy(error->message, "the disk is on fire");
      return TENON_E_IO;
    }
    for (int64_t t = 0; t < data->context; ++t) {
      ((int32_t*)outs[0])[(int64_t)i * data->context + t] = (int32_t)((indices[i] + t) % kVocabulary);
      ((int32_t*)outs[1])[(int64_t)i * data->context + t] = (int32_t)((indices[i] + t + 1) % kVocabulary);
    }
  }
  return TENON_OK;
}

static const tenon_data data_table = {sizeof(tenon_data), 0,         open_data, close_data,
                                      describe,           read_data, NULL,      NULL};

static const tenon_option_decl fail_at = {sizeof(tenon_option_decl),
                                          TENON_INT,
                                          "fail_at",
                                          "the sample that cannot be read",
                                          "-1",
                                          NULL,
                                          -1,
                                          kNumSamples};
static const tenon_option_decl opens = {
    sizeof(tenon_option_decl), TENON_INT, "opens", "how often it can be opened", "8", NULL, 0, 8};
static const tenon_option_decl* const declared[] = {&fail_at, &opens};

static tenon_code init(const tenon_host* host, tenon_error* error) {
  (void)error;
  host_of_plugin = host;
  return TENON_OK;
}

static void deinit(void) { num_datasets = 0; }

static const void* get_interface(const char* id) { return strcmp(id, TENON_DATA) == 0 ? &data_table : NULL; }

TENON_EXPORT const tenon_plugin tenon_plugin_v0 = {sizeof(tenon_plugin),
                                                   TENON_ABI_MAJOR,
                                                   TENON_ABI_MINOR,
                                                   TENON_ABI_MINOR,
                                                   "data/faulty",
                                                   "1",
                                                   "fails when told to",
                                                   declared,
                                                   2,
                                                   init,
                                                   deinit,
                                                   get_interface};
