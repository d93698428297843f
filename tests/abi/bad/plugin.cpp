// Any plugin, made bad on purpose: a copy of this file under its name, in a folder that is searched first,
// loads the good one of that name and stands for it in all but one slot.
//
// TENON_BAD_GOODS: the folder of the good ones. TENON_BAD_SLOT: "load", "init", "deinit", "get_interface",
// "unload" or a slot of a table. TENON_BAD_DEED: one of kDeeds. TENON_BAD_MARK: a file that is made when the
// deed is done.
#include "tenon/plugin.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tenon/comm.h"
#include "tenon/data.h"
#include "tenon/draft/pass.h"
#include "tenon/frontend.h"
#include "tenon/kernels.h"
#include "tenon/optimizer.h"
#include "tenon/schedule.h"
#include "tenon/sink.h"

// The symbol that is exported, which is written before anybody reads it.
extern "C" TENON_EXPORT tenon_plugin g_self asm("tenon_plugin_v0");

namespace {

struct Settings {
  std::string goods, slot, deed, mark;
};

std::string own_path() {
  Dl_info self{};
  return dladdr(&g_self, &self) != 0 ? self.dli_fname : "";
}

const Settings& settings() {
  // Never destroyed: unload() reads them.
  static const Settings& all = *[] {
    auto* const out = new Settings;
    const std::string path = own_path();
    std::ifstream in(path.substr(0, path.rfind('/')) + "/bad");
    for (std::string* line : {&out->goods, &out->slot, &out->deed, &out->mark}) std::getline(in, *line);
    return out;
  }();
  return all;
}

const tenon_plugin* g_good = nullptr;

void mark() {
  const int fd = open(settings().mark.c_str(), O_CREAT | O_WRONLY, 0600);
  if (fd >= 0) close(fd);
}

// -- What can be done in any function -----------------------------------------------------------------

// To a pipe that nobody reads.
void write_unread() {
  int ends[2];
  if (pipe(ends) != 0) return;
  close(ends[0]);
  (void)!write(ends[1], "x", 1);
  close(ends[1]);
}

void die(std::string_view deed) {
  mark();
  if (deed == "crash") *reinterpret_cast<volatile int*>(8) = 1;
  if (deed == "exit") std::exit(0);
  if (deed == "_exit") _exit(0);
  if (deed == "sigpipe") {
    std::signal(SIGPIPE, SIG_DFL);
    write_unread();
  }
}

// What a constructor may do beside loading.
void be_rude(std::string_view deed) {
  if (deed == "print") (void)!write(STDOUT_FILENO, "hello\n", 6);
  if (deed != "leave" || fork() != 0) return;
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(file);
  for (;;) pause();  // whoever runs the command ends its group
}

bool is_deadly(std::string_view deed) {
  return deed == "crash" || deed == "exit" || deed == "_exit" || deed == "sigpipe";
}

// -- What can be done in one that answers with a code -------------------------------------------------

tenon_error* error_of(tenon_error* error) { return error; }
tenon_error* error_of(int32_t) { return nullptr; }  // of tenon_schedule's owner, whose answer is a number
template <class First, class... Rest>
tenon_error* error_of(First, Rest... rest) {
  return error_of(rest...);  // the last one
}

tenon_code text_without_end(tenon_error* error) {
  if (error == nullptr) return TENON_E_IO;
  std::memset(error->message, 'x', sizeof error->message);
  std::memset(error->vendor, 'v', sizeof error->vendor);
  return TENON_E_IO;
}

// -- What can be done to values: after the good one has done its work ---------------------------------

// Of batches of one field: its size is known from what the good one described, to each rank.
std::atomic<decltype(tenon_data_info::fields)> g_fields{nullptr};

// An answer that was cut short says too little.
void keep(const tenon_data_info& info) {
  if (TENON_HAS(&info, tenon_data_info, fields)) g_fields = info.fields;
}

void spoil_read(std::string_view deed, uint64_t n, void* const* outs) {
  const tenon_field& field = *g_fields.load()[0];
  const auto count = static_cast<size_t>(n) * static_cast<size_t>(field.shape.dims[0]);
  auto* const tokens = static_cast<int32_t*>(outs[0]);
  if (deed == "limit") tokens[count - 1] = 1 << 30;
  if (deed == "below") tokens[count - 1] = -2;
  if (deed == "past") tokens[count] = 7;
  if (deed == "far") tokens[count + 64] = 7;
}

void spoil_step(std::string_view deed, const tenon_update* const* updates) {
  if (deed == "nan") *static_cast<float*>(updates[0]->param) = std::numeric_limits<float>::quiet_NaN();
}

template <class... A>
void spoil(std::string_view, A...) {}
void spoil(std::string_view deed, tenon_dataset*, const int64_t*, uint64_t n, void* const* outs,
           tenon_error*) {
  spoil_read(deed, n, outs);
}
void spoil(std::string_view deed, tenon_optimizer_state*, const tenon_stream*,
           const tenon_update* const* updates, uint32_t, const tenon_step_scalars*, tenon_error*) {
  spoil_step(deed, updates);
}
void spoil(std::string_view, tenon_dataset*, tenon_data_info* info, tenon_error*) { keep(*info); }

// Of products, the last element of what each makes: what is there before a call of enqueue.
struct LastElement {
  float* at = nullptr;
  float before = 0;
  explicit LastElement(float* place) : at(place), before(place == nullptr ? 0 : *place) {}
  void put_back() const {
    if (at != nullptr) *at = before;
  }
};
struct Product {
  uint32_t inputs = 0;
  size_t elements = 0;
};
std::mutex g_products_mutex;
std::map<const tenon_kernel*, Product> g_products;

template <class... A>
LastElement last_of(A...) {
  return LastElement(nullptr);
}
LastElement last_of(tenon_kernel* kernel, const tenon_stream*, void* const* pointers, tenon_error*) {
  const std::lock_guard lock(g_products_mutex);
  const auto known = g_products.find(kernel);
  if (known == g_products.end()) return LastElement(nullptr);
  return LastElement(static_cast<float*>(pointers[known->second.inputs]) + known->second.elements - 1);
}

// -- What is done well at first -----------------------------------------------------------------------

// Of a call that is made again in every step, in the memory of the core's that it is made with.
const void* memory_of(tenon_kernel*, const tenon_stream*, void* const* pointers, tenon_error*) {
  return static_cast<const void*>(pointers);
}
const void* memory_of(tenon_optimizer_state*, const tenon_stream*, const tenon_update* const* updates,
                      uint32_t, const tenon_step_scalars*, tenon_error*) {
  return static_cast<const void*>(updates);
}
template <class... A>
const void* memory_of(A...) {
  return nullptr;
}

bool is_first_of(const void* memory) {
  static std::mutex mutex;
  static std::set<const void*> seen;
  const std::lock_guard lock(mutex);
  return seen.insert(memory).second;
}

// -- The slots --------------------------------------------------------------------------------------

template <class Table>
const Table*& good() {
  static const Table* table = nullptr;
  return table;
}

template <class R, class... A>
R answer(std::string_view deed, A... arguments) {
  if (is_deadly(deed)) die(deed);
  mark();
  if constexpr (std::is_same_v<R, tenon_code>) {
    if (deed == "code") return 99;
    if (deed == "pending") return TENON_PENDING;
    if (deed == "unknown") return -99;
    if (deed == "text") return text_without_end(error_of(arguments...));
    return TENON_OK;  // "null", "unwritten", "stale": nothing is done
  } else if constexpr (std::is_integral_v<R>) {
    return -7;
  }
}

template <class Slot>
struct Type;
template <class Table_, class R, class... A>
struct Type<R (*Table_::*)(A...)> {
  using Table = Table_;
  template <R (*Table::*kSlot)(A...)>
  static R bad(A... arguments) {
    const std::string_view deed = settings().deed;
    if constexpr (std::is_same_v<R, tenon_code>) {
      if (deed == "last") {
        const LastElement last = last_of(arguments...);
        const R code = (good<Table>()->*kSlot)(arguments...);
        mark();
        last.put_back();
        return code;
      }
    }
    if (deed == "stale" && is_first_of(memory_of(arguments...))) return (good<Table>()->*kSlot)(arguments...);
    const bool after = deed == "nan" || deed == "limit" || deed == "below" || deed == "past" ||
                       deed == "far" || deed == "pipe";
    if (!after) return answer<R>(deed, arguments...);
    if constexpr (std::is_same_v<R, tenon_code>) {
      const R code = (good<Table>()->*kSlot)(arguments...);
      mark();
      if (deed == "pipe") write_unread();
      spoil(deed, arguments...);
      return code;
    }
  }
  template <R (*Table::*kSlot)(A...)>
  static void put(Table& table) {
    if (table.*kSlot != nullptr) table.*kSlot = &bad<kSlot>;
  }
};

template <class Table>
struct Row {
  const char* name;
  void (*put)(Table&);
};

#define ROW(T, name) \
  { #name, &Type < decltype(&T::name)> ::put < &T::name> }

constexpr Row<tenon_comm> kComm[] = {
    ROW(tenon_comm, domain_open), ROW(tenon_comm, domain_close), ROW(tenon_comm, alloc),
    ROW(tenon_comm, free),        ROW(tenon_comm, group_open),   ROW(tenon_comm, group_close),
    ROW(tenon_comm, prepare),     ROW(tenon_comm, start),        ROW(tenon_comm, test),
    ROW(tenon_comm, wait_host),   ROW(tenon_comm, wait_stream),  ROW(tenon_comm, abort),
    ROW(tenon_comm, release)};
constexpr Row<tenon_kernels> kKernels[] = {ROW(tenon_kernels, open),
                                           ROW(tenon_kernels, close),
                                           ROW(tenon_kernels, describe),
                                           ROW(tenon_kernels, prepare),
                                           ROW(tenon_kernels, release),
                                           ROW(tenon_kernels, enqueue),
                                           ROW(tenon_kernels, alloc),
                                           ROW(tenon_kernels, free),
                                           ROW(tenon_kernels, copy),
                                           ROW(tenon_kernels, stream_create),
                                           ROW(tenon_kernels, stream_destroy),
                                           ROW(tenon_kernels, event_create),
                                           ROW(tenon_kernels, event_destroy),
                                           ROW(tenon_kernels, event_record),
                                           ROW(tenon_kernels, event_wait_stream),
                                           ROW(tenon_kernels, event_wait_host),
                                           ROW(tenon_kernels, event_query)};
constexpr Row<tenon_optimizer> kOptimizer[] = {ROW(tenon_optimizer, open), ROW(tenon_optimizer, close),
                                               ROW(tenon_optimizer, describe), ROW(tenon_optimizer, stats),
                                               ROW(tenon_optimizer, step)};
constexpr Row<tenon_data> kData[] = {ROW(tenon_data, open),     ROW(tenon_data, close),
                                     ROW(tenon_data, describe), ROW(tenon_data, read),
                                     ROW(tenon_data, encode),   ROW(tenon_data, decode)};
constexpr Row<tenon_sink> kSink[] = {ROW(tenon_sink, open), ROW(tenon_sink, close), ROW(tenon_sink, write)};
constexpr Row<tenon_frontend> kFrontend[] = {ROW(tenon_frontend, evaluate)};
constexpr Row<tenon_schedule> kSchedule[] = {ROW(tenon_schedule, owner), ROW(tenon_schedule, rows)};
constexpr Row<tenon_pass> kPass[] = {ROW(tenon_pass, run)};

tenon_code prepare_and_keep(tenon_device* device, const tenon_kernel_desc* desc, tenon_kernel** out,
                            tenon_error* error) {
  const tenon_code code = good<tenon_kernels>()->prepare(device, desc, out, error);
  if (code != TENON_OK || std::string_view(desc->kind) != "linear") return code;
  Product product{desc->num_inputs, 1};
  const tenon_shape& shape = desc->outputs[0];
  for (uint32_t d = 0; d < shape.ndim; ++d) product.elements *= static_cast<size_t>(shape.dims[d]);
  const std::lock_guard lock(g_products_mutex);
  g_products[*out] = product;
  return code;
}

// Transfers to other memory than they come from go to where nobody looks.
tenon_code prepare_elsewhere(tenon_comm_group* group, const tenon_comm_op* const* ops, uint32_t num_ops,
                             tenon_comm_plan** out, tenon_error* error) {
  static std::vector<double> elsewhere(1 << 20);
  std::vector<tenon_comm_op> changed;
  std::vector<const tenon_comm_op*> pointers;
  for (uint32_t i = 0; i < num_ops; ++i) changed.push_back(*ops[i]);
  for (tenon_comm_op& op : changed) {
    if (op.src != op.dst) op.dst = elsewhere.data();
    pointers.push_back(&op);
  }
  mark();
  return good<tenon_comm>()->prepare(group, pointers.data(), num_ops, out, error);
}

// A copy of the good table with the slot that was asked for changed; what `describe` says is kept too.
template <class Table, size_t N>
const void* spoiled(const Row<Table> (&rows)[N]) {
  static Table table{};
  table = *good<Table>();
  if constexpr (std::is_same_v<Table, tenon_data>) {
    table.describe = [](tenon_dataset* dataset, tenon_data_info* info, tenon_error* error) {
      const tenon_code code = good<tenon_data>()->describe(dataset, info, error);
      keep(*info);
      return code;
    };
  }
  if constexpr (std::is_same_v<Table, tenon_kernels>) {
    if (settings().deed == "last") table.prepare = prepare_and_keep;
  }
  if constexpr (std::is_same_v<Table, tenon_comm>) {
    if (settings().deed == "elsewhere") table.prepare = prepare_elsewhere;
  }
  for (const Row<Table>& row : rows) {
    if (settings().slot == row.name) row.put(table);
  }
  return &table;
}

template <class Table, size_t N>
bool try_one(const char* id, const char* wanted, const Row<Table> (&rows)[N], const void*& out) {
  if (std::string_view(id) != wanted) return false;
  good<Table>() = static_cast<const Table*>(g_good->get_interface(id));
  if (good<Table>() != nullptr) out = spoiled(rows);
  return true;
}

const void* get_interface(const char* id) {
  const std::string_view deed = settings().deed;
  if (settings().slot == "get_interface") {
    if (is_deadly(deed)) die(deed);
    mark();
    return nullptr;
  }
  const void* out = nullptr;
  (void)(try_one(id, TENON_COMM, kComm, out) || try_one(id, TENON_KERNELS, kKernels, out) ||
         try_one(id, TENON_OPTIMIZER, kOptimizer, out) || try_one(id, TENON_DATA, kData, out) ||
         try_one(id, TENON_SINK, kSink, out) || try_one(id, TENON_FRONTEND, kFrontend, out) ||
         try_one(id, TENON_SCHEDULE, kSchedule, out) || try_one(id, TENON_PASS, kPass, out));
  return out;
}

tenon_code init(const tenon_host* host, tenon_error* error) {
  if (settings().slot == "init") return answer<tenon_code>(settings().deed, error);
  return g_good->init(host, error);
}

void deinit() {
  if (settings().slot == "deinit") die(settings().deed);
  g_good->deinit();
}

// The plugin of this file's name.
[[gnu::constructor]] void load() {
  if (settings().slot == "load") die(settings().deed), be_rude(settings().deed);
  const std::string path = own_path();
  const std::string file = settings().goods + path.substr(path.rfind('/'));
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  g_good = static_cast<const tenon_plugin*>(dlsym(library, "tenon_plugin_v0"));
  g_self = *g_good;
  g_self.init = init;
  g_self.deinit = deinit;
  g_self.get_interface = get_interface;
}

[[gnu::destructor]] void unload() {
  if (settings().slot == "unload") die(settings().deed);
}

}  // namespace

tenon_plugin g_self{};
