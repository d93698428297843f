// A plugin that stands before an honest one of its kind and tells one lie (lies.h): which, its file's name
// says, so that one build makes all of them. Exports what plugins export, and links to nothing of Tenon's.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <string>

#include "lies.h"
#include "tenon/comm.h"
#include "tenon/data.h"
#include "tenon/draft/pass.h"
#include "tenon/frontend.h"
#include "tenon/kernels.h"
#include "tenon/optimizer.h"
#include "tenon/schedule.h"
#include "tenon/sink.h"

// The header declares it const, which an honest one is.
#define tenon_plugin_v0 tenon_plugin_v0_of_honest_ones
#include "tenon/plugin.h"
#undef tenon_plugin_v0

extern "C" TENON_EXPORT tenon_plugin tenon_plugin_v0;

namespace {

// Not const: what is exported is made when the file is loaded, before anybody has read it.
struct Liar {
  std::string kind, name, id, lie;
  const tenon_plugin* honest = nullptr;
  tenon_comm comm{};
  tenon_data data{};
  tenon_frontend frontend{};
  tenon_kernels kernels{};
  tenon_optimizer optimizer{};
  tenon_pass pass{};
  tenon_schedule schedule{};
  tenon_sink sink{};
  // What the honest one says, or is said instead of it.
  tenon_option_decl options[2]{};
  const tenon_option_decl* option_list[2] = {&options[0], &options[1]};
  tenon_slot_decl slots[2]{};
  const tenon_slot_decl* slot_list[2] = {&slots[0], &slots[1]};
  tenon_field fields[3]{};
  const tenon_field* field_list[3] = {&fields[0], &fields[1], &fields[2]};
  int64_t dims[3] = {12, 1, 1};
  int asked = 0;
  uint64_t context = 0;              // tokens of a sample
  bool fused = false;                // the kernel that is asked for is what several ops do
  const tenon_host* host = nullptr;  // of init
  std::string endless = std::string(1 << 16, 'x');
};

Liar& self() {
  static Liar liar;
  return liar;
}

// -- lies of a describe: the honest answer, changed -----------------------------------------------------

void (*change_optimizer)(Liar&, tenon_optimizer_info&) = nullptr;
void (*change_data)(Liar&, tenon_data_info&) = nullptr;
void (*change_kernel)(Liar&, tenon_kernel_info&) = nullptr;

tenon_code describe_optimizer(const tenon_optimizer_state* state, tenon_optimizer_info* info,
                              tenon_error* error) {
  Liar& liar = self();
  const auto* table = static_cast<const tenon_optimizer*>(liar.honest->get_interface(TENON_OPTIMIZER));
  tenon_optimizer_info mine{};
  mine.struct_size = sizeof mine;
  const tenon_code code = table->describe(state, &mine, error);
  if (code < 0) return code;
  for (int i = 0; i < 2; ++i) liar.slots[i] = *mine.slots[i];
  mine.slots = liar.slot_list;
  ++liar.asked;
  change_optimizer(liar, mine);
  tenon_fill(info, &mine);
  return TENON_OK;
}

tenon_code describe_data(tenon_dataset* dataset, tenon_data_info* info, tenon_error* error) {
  Liar& liar = self();
  const auto* table = static_cast<const tenon_data*>(liar.honest->get_interface(TENON_DATA));
  tenon_data_info mine{};
  mine.struct_size = sizeof mine;
  const tenon_code code = table->describe(dataset, &mine, error);
  if (code < 0) return code;
  for (int i = 0; i < 2; ++i) liar.fields[i] = *mine.fields[i];
  mine.fields = liar.field_list;
  liar.context = static_cast<uint64_t>(liar.fields[0].shape.dims[0]);
  ++liar.asked;
  change_data(liar, mine);
  tenon_fill(info, &mine);
  return TENON_OK;
}

bool is_fused(const tenon_kernel_desc& desc) {
  return std::strcmp(desc.kind, "add_layernorm") == 0 || std::strcmp(desc.kind, "bias_gelu") == 0;
}

template <tenon_code kCode>
tenon_code describe_fusions_with(const tenon_kernels_config* config, const tenon_kernel_desc* desc,
                                 tenon_kernel_info* info, tenon_error* error) {
  const auto* table = static_cast<const tenon_kernels*>(self().honest->get_interface(TENON_KERNELS));
  return is_fused(*desc) ? kCode : table->describe(config, desc, info, error);
}

// A third field, which the model has no use for.
void add_field(Liar& liar, tenon_data_info& info, int64_t elements) {
  liar.dims[0] = elements;
  liar.fields[2] = liar.fields[0];
  liar.fields[2].name = "more";
  liar.fields[2].shape.dims = liar.dims;
  info.num_fields = 3;
}

tenon_code describe_kernel(const tenon_kernels_config* config, const tenon_kernel_desc* desc,
                           tenon_kernel_info* info, tenon_error* error) {
  Liar& liar = self();
  const auto* table = static_cast<const tenon_kernels*>(liar.honest->get_interface(TENON_KERNELS));
  tenon_kernel_info mine{};
  mine.struct_size = sizeof mine;
  const tenon_code code = table->describe(config, desc, &mine, error);
  if (code < 0) return code;
  ++liar.asked;
  liar.fused = is_fused(*desc);
  change_kernel(liar, mine);
  tenon_fill(info, &mine);
  return TENON_OK;
}

void lie(Liar& liar, void (*change)(Liar&, tenon_optimizer_info&)) {
  change_optimizer = change;
  liar.optimizer.describe = describe_optimizer;
}
void lie(Liar& liar, void (*change)(Liar&, tenon_data_info&)) {
  change_data = change;
  liar.data.describe = describe_data;
}
void lie(Liar& liar, void (*change)(Liar&, tenon_kernel_info&)) {
  change_kernel = change;
  liar.kernels.describe = describe_kernel;
}

// -- all of them ----------------------------------------------------------------------------------------

using Tell = void (*)(Liar&, tenon_plugin&);

constexpr auto open_nothing = [](auto...) -> tenon_code { return TENON_OK; };

#define TELL [](Liar & liar, tenon_plugin & plugin)
#define OPTIMIZER(...)                                  \
  TELL {                                                \
    (void)plugin;                                       \
    lie(liar, [](Liar& l, tenon_optimizer_info& info) { \
      (void)l, (void)info;                              \
      __VA_ARGS__;                                      \
    });                                                 \
  }
// Of an optimizer that has the slot `stats`, which the honest one has not.
#define STATS(...)                                      \
  TELL {                                                \
    (void)plugin;                                       \
    liar.optimizer.stats = open_nothing;                \
    lie(liar, [](Liar& l, tenon_optimizer_info& info) { \
      (void)l, (void)info;                              \
      __VA_ARGS__;                                      \
    });                                                 \
  }
#define DATA(...)                                  \
  TELL {                                           \
    (void)plugin;                                  \
    lie(liar, [](Liar& l, tenon_data_info& info) { \
      (void)l, (void)info;                         \
      __VA_ARGS__;                                 \
    });                                            \
  }
#define KERNEL(...)                                  \
  TELL {                                             \
    (void)plugin;                                    \
    lie(liar, [](Liar& l, tenon_kernel_info& info) { \
      (void)l, (void)info;                           \
      __VA_ARGS__;                                   \
    });                                              \
  }
#define PLUGIN(...)           \
  TELL {                      \
    (void)liar, (void)plugin; \
    __VA_ARGS__;              \
  }

#define BATCH(...)                                                \
  TELL {                                                          \
    (void)plugin;                                                 \
    lie(liar, [](int32_t* tokens, int32_t* targets, uint64_t n) { \
      (void)tokens, (void)targets, (void)n;                       \
      __VA_ARGS__;                                                \
    });                                                           \
  }
// `value` of a parameter, or of one that none is.
#define PASS(...)                                                                                 \
  TELL {                                                                                          \
    (void)plugin;                                                                                 \
    liar.pass.run = [](const tenon_pass_config* config, tenon_graph* graph, tenon_error* error) { \
      const tenon_graph_api& api = *config->api;                                                  \
      const tenon_value_id value = a_parameter(api, graph);                                       \
      (void)api, (void)error, (void)value;                                                        \
      return tenon_code{__VA_ARGS__};                                                             \
    };                                                                                            \
  }
#define DOCUMENT(...)                                          \
  TELL {                                                       \
    (void)plugin;                                              \
    lie(liar, [](const Emission& emit, std::string document) { \
      (void)emit, (void)document;                              \
      __VA_ARGS__;                                             \
    });                                                        \
  }

tenon_value_id a_parameter(const tenon_graph_api& api, tenon_graph* graph) {
  const tenon_value_id* values = nullptr;
  for (uint32_t i = 0, n = api.values(graph, &values); i < n; ++i) {
    const tenon_value_id value = values[i];
    tenon_value_info info{};
    info.struct_size = sizeof info;
    if (api.value(graph, value, &info, nullptr) == TENON_OK && info.role == TENON_ROLE_PARAM) return value;
  }
  return 0;
}

// `text` with the first `from` replaced.
std::string changed(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) std::abort();  // no lie was told
  return text.replace(at, from.size(), to);
}

// Behind the start of an honest block, which `free` finds again.
tenon_code alloc_kernels(tenon_device* device, uint64_t bytes, void** out, tenon_error* error) {
  const auto* table = static_cast<const tenon_kernels*>(self().honest->get_interface(TENON_KERNELS));
  const tenon_code code = table->alloc(device, bytes + 64, out, error);
  if (code == TENON_OK) *out = static_cast<char*>(*out) + 8;
  return code;
}
void free_kernels(tenon_device* device, void* pointer) {
  const auto* table = static_cast<const tenon_kernels*>(self().honest->get_interface(TENON_KERNELS));
  table->free(device, static_cast<char*>(pointer) - 8);
}
tenon_code alloc_comm(tenon_comm_domain* domain, uint64_t bytes, void** out, tenon_error* error) {
  const auto* table = static_cast<const tenon_comm*>(self().honest->get_interface(TENON_COMM));
  const tenon_code code = table->alloc(domain, bytes + 64, out, error);
  if (code == TENON_OK) *out = static_cast<char*>(*out) + 8;
  return code;
}
void free_comm(tenon_comm_domain* domain, void* pointer) {
  const auto* table = static_cast<const tenon_comm*>(self().honest->get_interface(TENON_COMM));
  table->free(domain, static_cast<char*>(pointer) - 8);
}

template <int32_t kToken>
tenon_code encode_as(tenon_dataset*, const char*, uint64_t, int32_t* tokens, uint64_t* count, tenon_error*) {
  *tokens = kToken;
  *count = 1;
  return TENON_OK;
}

// The honest batch, changed: no bound is declared, so that the model's is all there is.
void (*change_batch)(int32_t* tokens, int32_t* targets, uint64_t n) = nullptr;
tenon_code read_changed(tenon_dataset* dataset, const int64_t* indices, uint64_t n, void* const* outs,
                        tenon_error* error) {
  const auto* table = static_cast<const tenon_data*>(self().honest->get_interface(TENON_DATA));
  const tenon_code code = table->read(dataset, indices, n, outs, error);
  if (code == TENON_OK) change_batch(static_cast<int32_t*>(outs[0]), static_cast<int32_t*>(outs[1]), n);
  return code;
}
void lie(Liar& liar, void (*change)(int32_t*, int32_t*, uint64_t)) {
  change_batch = change;
  lie(liar, [](Liar& l, tenon_data_info&) { l.fields[0].limit = l.fields[1].limit = 0; });
  liar.data.read = read_changed;
}

// What a front end emits: the honest document, or another one.
using EmitDocument = void (*)(void* arg, const char* json, uint64_t size);
struct Emission {
  EmitDocument emit;
  void* arg;
  void operator()(const std::string& text) const { emit(arg, text.data(), text.size()); }
};
void (*write_document)(const Emission& emit, std::string document) = nullptr;
tenon_code evaluate_and_write(const tenon_frontend_config* config, EmitDocument emit, void* arg,
                              tenon_error* error) {
  const auto* table = static_cast<const tenon_frontend*>(self().honest->get_interface(TENON_FRONTEND));
  std::string document;
  const tenon_code code = table->evaluate(
      config,
      [](void* out, const char* json, uint64_t size) { static_cast<std::string*>(out)->append(json, size); },
      &document, error);
  if (code == TENON_OK) write_document({emit, arg}, std::move(document));
  return code;
}
void lie(Liar& liar, void (*write)(const Emission&, std::string)) {
  write_document = write;
  liar.frontend.evaluate = evaluate_and_write;
}
tenon_code keep_host(const tenon_host* host, tenon_error* error) {
  self().host = host;
  return self().honest->init(host, error);
}
tenon_code fail(tenon_error* error, const char* message) {
  tenon_error mine{};
  mine.struct_size = sizeof mine;
  std::strcpy(mine.message, message);
  tenon_fill(error, &mine);
  return TENON_E_IO;
}
tenon_code init_fails(const tenon_host*, tenon_error* error) { return fail(error, "no Lua today"); }
// In the process where recipes are evaluated, whose host has nothing but a log.
tenon_code init_fails_there(const tenon_host* host, tenon_error* error) {
  return host->get_interface(host, TENON_HOST_PARALLEL) == nullptr ? fail(error, "no Lua there") : TENON_OK;
}
// Answers only where init came before, and the host is the one of init.
tenon_code evaluate_with_host(const tenon_frontend_config* config, EmitDocument emit, void* arg,
                              tenon_error* error) {
  const tenon_host* const host = self().host;
  if (host == nullptr || config->host != host) return TENON_E_STATE;
  if (host->get_interface(host, TENON_HOST_PARALLEL) != nullptr) return TENON_E_STATE;
  host->log(host, TENON_LOG_WARN, "liar.cpp", 1, "a front end logs");
  const auto* table = static_cast<const tenon_frontend*>(self().honest->get_interface(TENON_FRONTEND));
  return table->evaluate(config, emit, arg, error);
}

using Emit = void (*)(void*, int32_t, const tenon_row*);
template <uint32_t kKind, int32_t kRank, int kTimes>
tenon_code emit_row(const tenon_schedule_config*, Emit emit, void* arg, tenon_error*) {
  const tenon_row row = {kKind, 0, 0, 0};
  for (int i = 0; i < kTimes; ++i) emit(arg, kRank, &row);
  return TENON_OK;
}
tenon_code emit_null(const tenon_schedule_config*, Emit emit, void* arg, tenon_error*) {
  emit(arg, 0, nullptr);
  return TENON_OK;
}

const std::map<std::string, Tell>& all_lies() {
  static const std::map<std::string, Tell> lies = {
      {"sink/none", PLUGIN({})},
      {"sink/struct-size-small", PLUGIN(plugin.struct_size = 8)},
      {"sink/struct-size-cut", PLUGIN(plugin.struct_size = offsetof(tenon_plugin, init))},
      {"sink/struct-size-inside", PLUGIN(plugin.struct_size = offsetof(tenon_plugin, deinit) + 4)},
      {"sink/built-older", PLUGIN(plugin.abi_minor_built = plugin.abi_minor_required = 1)},
      {"sink/required-newer", PLUGIN(plugin.abi_minor_built = plugin.abi_minor_required = 99)},
      {"sink/required-above-built", PLUGIN(plugin.abi_minor_required = plugin.abi_minor_built + 1)},
      {"sink/another-id", PLUGIN(plugin.id = "sink/other")},
      {"sink/id-null", PLUGIN(plugin.id = nullptr)},
      {"sink/version-null", PLUGIN(plugin.version = nullptr)},
      {"sink/doc-null", PLUGIN(plugin.doc = nullptr)},
      {"sink/doc-endless", PLUGIN(plugin.doc = liar.endless.c_str())},
      {"sink/doc-not-utf8", PLUGIN(plugin.doc = "caf\xe9")},
      {"sink/init-null", PLUGIN(plugin.init = nullptr)},
      {"sink/deinit-null", PLUGIN(plugin.deinit = nullptr)},
      {"sink/get-interface-null", PLUGIN(plugin.get_interface = nullptr)},
      {"sink/no-interface",
       PLUGIN(plugin.get_interface = [](const char*) -> const void* { return nullptr; })},
      {"sink/options-null", PLUGIN(plugin.options = nullptr)},
      {"sink/options-many", PLUGIN(plugin.num_options = uint64_t{1} << 40)},
      {"sink/option-null", PLUGIN(liar.option_list[0] = nullptr)},
      {"sink/option-size", PLUGIN(liar.options[0].struct_size = 4)},
      {"sink/option-size-inside",
       PLUGIN(liar.options[0].struct_size = offsetof(tenon_option_decl, fallback) + 4)},
      {"sink/option-name-null", PLUGIN(liar.options[0].name = nullptr)},
      {"sink/option-name-twice", PLUGIN(liar.options[1] = liar.options[0]; plugin.num_options = 2)},
      {"sink/option-doc-endless", PLUGIN(liar.options[0].doc = liar.endless.c_str())},
      {"sink/option-kind", PLUGIN(liar.options[0].kind = 9)},
      {"sink/option-default", PLUGIN(liar.options[0].kind = TENON_FLOAT; liar.options[0].fallback = "much")},
      {"sink/table-size", PLUGIN(liar.sink.struct_size = UINT32_MAX)},
      {"sink/table-size-inside", PLUGIN(liar.sink.struct_size = offsetof(tenon_sink, write) + 4)},
      {"sink/slot-null", PLUGIN(liar.sink.write = nullptr)},
      {"sink/open-null", PLUGIN(liar.sink.open = open_nothing)},
      {"comm/flags", PLUGIN(liar.comm.flags |= 0x80)},
      {"data/encode-alone", PLUGIN(liar.data.decode = nullptr)},
      {"kernels/device",
       PLUGIN(
           liar.kernels.device_type = kDLCUDA; liar.kernels.stream_create = open_nothing;
           liar.kernels.stream_destroy = [](auto...) {}; liar.kernels.event_create = open_nothing;
           liar.kernels.event_destroy = [](auto...) {}; liar.kernels.event_record = open_nothing;
           liar.kernels.event_wait_stream = open_nothing; liar.kernels.event_wait_host = open_nothing;
           liar.kernels.event_query = open_nothing)},
      {"optimizer/device", PLUGIN(liar.optimizer.device_type = kDLCUDA)},
      {"optimizer/device-unknown", PLUGIN(liar.optimizer.device_type = 77)},
      {"parallel/phase", PLUGIN(liar.pass.phase = 7)},
      {"parallel/needs-not-utf8", PLUGIN(liar.pass.needs = "\xff")},
      {"parallel/draft", PLUGIN(plugin.abi_minor_built = 99)},
      {"optimizer/slots-null", OPTIMIZER(info.slots = nullptr)},
      {"optimizer/slots-many", OPTIMIZER(info.num_slots = UINT32_MAX)},
      {"optimizer/slot-null", OPTIMIZER(l.slot_list[1] = nullptr)},
      {"optimizer/slot-size", OPTIMIZER(l.slots[0].struct_size = 0)},
      {"optimizer/slot-size-inside", OPTIMIZER(l.slots[0].struct_size = offsetof(tenon_slot_decl, name) + 4)},
      {"optimizer/slot-name-null", OPTIMIZER(l.slots[0].name = nullptr)},
      {"optimizer/slot-name-empty", OPTIMIZER(l.slots[0].name = "")},
      {"optimizer/slot-name-space", OPTIMIZER(l.slots[0].name = "exp avg")},
      {"optimizer/slot-name-slash", OPTIMIZER(l.slots[0].name = "exp/avg")},
      {"optimizer/slot-name-long",
       OPTIMIZER(l.slots[0].name =
                     "a-name-of-more-than-sixty-four-characters-that-no-checkpoint-can-ever-hold")},
      {"optimizer/slot-name-endless", OPTIMIZER(l.slots[0].name = l.endless.c_str())},
      {"optimizer/slot-name-twice", OPTIMIZER(l.slots[1].name = l.slots[0].name)},
      {"optimizer/slot-dtype", OPTIMIZER(l.slots[0].dtype = 99)},
      {"optimizer/granule", OPTIMIZER(info.granule = 9)},
      {"optimizer/stats-many", OPTIMIZER(info.num_stats = 1000)},
      {"optimizer/stats-negative", STATS(info.num_stats = static_cast<uint32_t>(-1))},
      {"optimizer/stats-one-too-many", STATS(info.num_stats = 65)},
      {"optimizer/stats-unsteady", STATS(info.num_stats = l.asked % 4 < 2 ? 0 : 1)},
      {"optimizer/stats-alone", OPTIMIZER(info.num_stats = 1)},
      {"optimizer/unsteady", OPTIMIZER(info.granule = l.asked % 4 < 2 ? 0 : 1)},
      {"optimizer/whole-info",
       PLUGIN(liar.optimizer.describe = [](const tenon_optimizer_state*, tenon_optimizer_info* info,
                                           tenon_error*) -> tenon_code {
         *info = {sizeof *info, 0, nullptr, 0, 0};
         return TENON_OK;
       })},
      {"optimizer/own-size",
       PLUGIN(liar.optimizer.describe = [](const tenon_optimizer_state*, tenon_optimizer_info* info,
                                           tenon_error*) -> tenon_code {
         info->struct_size = sizeof *info;
         return TENON_OK;
       })},
      {"optimizer/describe-unknown-error",
       PLUGIN(liar.optimizer.describe = [](auto...) -> tenon_code { return -99; })},
      {"optimizer/describe-unknown-success",
       PLUGIN(liar.optimizer.describe = [](auto...) -> tenon_code { return 5; })},
      {"optimizer/open-null", PLUGIN(liar.optimizer.open = open_nothing)},
      {"data/fields-null", DATA(info.fields = nullptr)},
      {"data/fields-many", DATA(info.num_fields = UINT32_MAX)},
      {"data/fields-none", DATA(info.num_fields = 0)},
      {"data/field-positions", DATA(l.fields[1].name = "positions")},
      {"data/field-null", DATA(l.field_list[0] = nullptr)},
      {"data/field-size", DATA(l.fields[0].struct_size = 16)},
      {"data/field-size-inside", DATA(l.fields[0].struct_size = offsetof(tenon_field, limit) + 4)},
      {"data/field-name-null", DATA(l.fields[0].name = nullptr)},
      {"data/field-name-not-utf8", DATA(l.fields[0].name = "\xff")},
      {"data/field-name-twice", DATA(l.fields[1].name = l.fields[0].name)},
      {"data/field-dtype", DATA(l.fields[0].shape.dtype = 99)},
      {"data/field-dims-null", DATA(l.fields[0].shape.dims = nullptr)},
      {"data/field-ndim", DATA(l.fields[0].shape.ndim = UINT32_MAX)},
      {"data/field-dim-negative", DATA(l.dims[0] = -5; l.fields[0].shape.dims = l.dims)},
      {"data/field-dim-huge", DATA(l.dims[0] = l.dims[1] = int64_t{1} << 31; l.fields[0].shape.dims = l.dims;
                                   l.fields[0].shape.ndim = 2)},
      {"data/field-limit", DATA(l.fields[0].limit = -1)},
      {"data/field-for-no-use", DATA(add_field(l, info, int64_t{1} << 40))},
      {"data/samples-negative", DATA(info.num_samples = -3)},
      {"data/digest-zero", DATA(std::memset(info.digest, 0, sizeof info.digest))},
      {"data/digest-random", DATA(info.digest[0] = static_cast<uint8_t>(l.asked))},
      {"data/whole-info",
       PLUGIN(liar.data.describe = [](tenon_dataset*, tenon_data_info* info, tenon_error*) -> tenon_code {
         *info = {sizeof *info, 0, 64, nullptr, {1}};
         return TENON_OK;
       })},
      {"data/encode-need", PLUGIN(liar.data.encode = [](tenon_dataset*, const char*, uint64_t, int32_t*,
                                                        uint64_t* count, tenon_error*) -> tenon_code {
         *count = UINT64_MAX;
         return TENON_OK;
       })},
      {"data/encode-needs-ever-more",
       PLUGIN(liar.data.encode = [](tenon_dataset*, const char*, uint64_t, int32_t*, uint64_t* count,
                                    tenon_error*) -> tenon_code {
         ++*count;
         return TENON_OK;
       })},
      {"data/encode-token", PLUGIN(liar.data.encode = encode_as<1000>)},
      {"data/encode-token-negative", PLUGIN(liar.data.encode = encode_as<-1>)},
      {"data/encode-code", PLUGIN(liar.data.encode = [](auto...) -> tenon_code { return 77; })},
      {"data/decode-need", PLUGIN(liar.data.decode = [](tenon_dataset*, const int32_t*, uint64_t, char*,
                                                        uint64_t* count, tenon_error*) -> tenon_code {
         *count = UINT64_MAX;
         return TENON_OK;
       })},
      {"data/open-null", PLUGIN(liar.data.open = open_nothing)},
      {"kernels/kernel-flags", KERNEL(info.flags |= 0x80)},
      {"kernels/workspace", KERNEL(info.workspace_bytes = UINT64_MAX)},
      {"kernels/private", KERNEL(info.private_bytes = UINT64_MAX)},
      {"kernels/seconds", KERNEL(info.seconds = -1)},
      {"kernels/unsteady", KERNEL(info.workspace_bytes = l.asked % 4 < 2 ? 0 : 64)},
      {"kernels/fusion-flags", KERNEL(if (l.fused) info.flags |= 0x80)},
      {"kernels/fusion-code", PLUGIN(liar.kernels.describe = describe_fusions_with<5>)},
      {"kernels/whole-info",
       PLUGIN(liar.kernels.describe = [](const tenon_kernels_config*, const tenon_kernel_desc*,
                                         tenon_kernel_info* info, tenon_error*) -> tenon_code {
         *info = {sizeof *info, TENON_KERNEL_EXACT, 0, 0, 0};
         return TENON_OK;
       })},
      {"kernels/open-null", PLUGIN(liar.kernels.open = open_nothing)},
      {"kernels/prepare-null", PLUGIN(liar.kernels.prepare = open_nothing)},
      {"kernels/alloc-null", PLUGIN(liar.kernels.alloc = open_nothing)},
      {"kernels/alloc-unaligned",
       PLUGIN(liar.kernels.alloc = alloc_kernels; liar.kernels.free = free_kernels)},
      {"comm/domain-null", PLUGIN(liar.comm.domain_open = open_nothing)},
      {"comm/group-null", PLUGIN(liar.comm.group_open = open_nothing)},
      {"comm/plan-null", PLUGIN(liar.comm.prepare = open_nothing)},
      {"comm/alloc-unaligned", PLUGIN(liar.comm.alloc = alloc_comm; liar.comm.free = free_comm)},
      {"data/targets-unwritten", BATCH(std::memset(targets, 0x80, n * self().context * sizeof *targets))},
      {"data/target-below", BATCH(targets[3] = -2)},
      {"data/target-beyond", BATCH(targets[3] = 256)},
      {"data/token-below", BATCH(tokens[3] = -1)},
      {"data/token-beyond", BATCH(tokens[3] = 256)},
      {"parallel/stage-huge", PASS(api.set_stage(graph, 1, 1u << 31, "dp", error))},
      {"parallel/stage-last", PASS(api.set_stage(graph, 1, UINT32_MAX, "dp", error))},
      {"parallel/stage-many", PASS(api.set_stage(graph, 1, 100000, "dp", error))},
      {"parallel/stage-op", PASS(api.set_stage(graph, 1u << 30, 0, "dp", error))},
      {"parallel/stage-no-op", PASS(api.set_stage(graph, 0, 0, "dp", error))},
      {"parallel/level", PASS(api.store(graph, value, 9, "dp", nullptr, error))},
      {"parallel/kind", PASS(api.substitute(graph, 1, "plus", error))},
      {"parallel/kind-null", PASS(api.substitute(graph, 1, nullptr, error))},
      {"parallel/dim", PASS(api.shard(graph, value, 77, "dp", error))},
      {"parallel/value", PASS(api.shard(graph, UINT32_MAX, 0, "dp", error))},
      {"parallel/axis-null", PASS(api.replicate(graph, value, nullptr, error))},
      {"parallel/graph-null", PASS(api.sum_late(nullptr, value, "dp", error))},
      {"parallel/split", PASS(api.split_axis(graph, "dp", -4, error))},
      {"parallel/answer", PASS(5)},
      {"frontend/none", PLUGIN({})},
      {"frontend/keeps-host", PLUGIN(plugin.init = keep_host; liar.frontend.evaluate = evaluate_with_host)},
      {"frontend/init-fails", PLUGIN(plugin.init = init_fails)},
      {"frontend/init-fails-there", PLUGIN(plugin.init = init_fails_there)},
      {"frontend/evaluate-null", PLUGIN(liar.frontend.evaluate = nullptr)},
      {"frontend/answer", PLUGIN(liar.frontend.evaluate = [](auto...) -> tenon_code { return 5; })},
      {"frontend/emits-never", DOCUMENT()},
      {"frontend/emits-twice", DOCUMENT(emit(document); emit(document))},
      {"frontend/emits-null", DOCUMENT(emit.emit(emit.arg, nullptr, 1000))},
      {"frontend/emits-nothing", DOCUMENT(emit(""))},
      {"frontend/damaged", DOCUMENT(emit(document.substr(0, document.size() / 2)))},
      {"frontend/not-utf8", DOCUMENT(emit(changed(document, "corpus", "\xff")))},
      {"frontend/a-list", DOCUMENT(emit("[" + document + "]"))},
      {"frontend/no-provenance", DOCUMENT(emit(changed(document, "provenance", "origin")))},
      {"frontend/a-place-that-is-none",
       DOCUMENT(emit(R"({"recipe": {}, "provenance": {"/": 7}, "parameters": []})"))},
      {"frontend/recipe-is-a-list", DOCUMENT(emit(R"({"recipe": [], "provenance": {}, "parameters": []})"))},
      {"frontend/error-without-words", DOCUMENT(emit(R"({"error": {"code": "R002"}})"))},
      {"frontend/error-of-no-code", DOCUMENT(emit(R"({"error": {"code": "done", "message": "x"}})"))},
      {"frontend/steps", DOCUMENT(emit(changed(document, "\"steps\":1", "\"steps\":-1")))},
      {"schedule/row-null", PLUGIN(liar.schedule.rows = emit_null)},
      {"schedule/row-kind", PLUGIN((liar.schedule.rows = emit_row<257, 0, 1>))},
      {"schedule/rows-many", PLUGIN((liar.schedule.rows = emit_row<0, 0, 100000>))},
      {"schedule/row-rank", PLUGIN((liar.schedule.rows = emit_row<0, 7, 1>))},
      {"schedule/owner",
       PLUGIN(liar.schedule.owner = [](const tenon_schedule_config*, int32_t) -> int32_t { return -7; })},
  };
  return lies;
}

// The honest plugin of each kind.
const char* honest_of(const std::string& kind) {
  if (kind == "comm") return "local";
  if (kind == "data") return "text";
  if (kind == "frontend") return "lua";
  if (kind == "kernels") return "reference";
  if (kind == "optimizer") return "adamw";
  if (kind == "parallel") return "data";
  if (kind == "schedule") return "1f1b";
  return "jsonl";
}

template <class Table>
void take(const char* id, Table& out) {
  if (const void* table = self().honest->get_interface(id)) out = *static_cast<const Table*>(table);
}

const void* get_interface(const char* id) {
  Liar& liar = self();
  if (liar.honest->get_interface(id) == nullptr) return nullptr;
  const std::pair<const char*, const void*> tables[] = {
      {TENON_COMM, &liar.comm}, {TENON_DATA, &liar.data},         {TENON_KERNELS, &liar.kernels},
      {TENON_PASS, &liar.pass}, {TENON_SCHEDULE, &liar.schedule}, {TENON_OPTIMIZER, &liar.optimizer},
      {TENON_SINK, &liar.sink}, {TENON_FRONTEND, &liar.frontend}};
  for (const auto& [name, table] : tables) {
    if (std::strcmp(name, id) == 0) return table;
  }
  return nullptr;
}

// "<folder>/libtenon-<kind>-<name>.so". Where a plugin of a given name is looked for, as a front end is, the
// lie stands in the file "lie" beside it.
void read_file_name(Liar& liar) {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&self), &info);
  const std::string path = info.dli_fname;
  const std::string file = path.substr(path.rfind('/') + 1);
  const size_t begin = std::strlen("libtenon-"), dash = file.find('-', begin);
  liar.kind = file.substr(begin, dash - begin);
  liar.name = file.substr(dash + 1, file.rfind('.') - dash - 1);
  liar.id = liar.kind + "/" + liar.name;
  liar.lie = liar.id;
  if (std::ifstream in(path.substr(0, path.rfind('/')) + "/lie"); in) in >> liar.lie;
}

__attribute__((constructor)) void on_load() {
  Liar& liar = self();
  read_file_name(liar);
  const std::string path = TENON_PLUGIN_DIR "/libtenon-" + liar.kind + "-" + honest_of(liar.kind) + ".so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;  // then nothing is exported, which the test sees
  liar.honest = static_cast<const tenon_plugin*>(dlsym(library, "tenon_plugin_v0"));
  take(TENON_COMM, liar.comm);
  take(TENON_DATA, liar.data);
  take(TENON_FRONTEND, liar.frontend);
  take(TENON_KERNELS, liar.kernels);
  take(TENON_OPTIMIZER, liar.optimizer);
  take(TENON_PASS, liar.pass);
  take(TENON_SCHEDULE, liar.schedule);
  take(TENON_SINK, liar.sink);
  tenon_plugin& plugin = tenon_plugin_v0;
  plugin = *liar.honest;
  plugin.id = liar.id.c_str();
  plugin.get_interface = get_interface;
  if (liar.kind == "sink") {  // whose option is lied about
    liar.options[0] = *liar.honest->options[0];
    plugin.options = liar.option_list;
  }
  const auto found = all_lies().find(liar.lie);
  if (found == all_lies().end()) {
    plugin.doc = nullptr;
    plugin.version = nullptr;  // no lie of that name: refused with words that none has
    return;
  }
  found->second(liar, plugin);
}

}  // namespace

tenon_plugin tenon_plugin_v0{};
