// Any plugin as one of another minor: a copy of this file under its name, in a folder that is searched first,
// loads the good one of that name and hands out its tables, options, slots and fields with another size, at
// the end of mapped memory, so that a byte that is read behind them ends the process. Calls go to the good
// one.
//
// The file "other-minor" beside it has two lines: the folder of the good ones; "cut", to what must be there
// and what is not zero, or "grown" by 64 bytes. The file "used" is made when a table is asked for.
#include "tenon/plugin.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
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

constexpr size_t kGrowth = 64;

const tenon_plugin* g_good = nullptr;

std::string own_path() {
  Dl_info self{};
  return dladdr(&g_self, &self) != 0 ? self.dli_fname : "";
}
std::string folder() {
  const std::string path = own_path();
  return path.substr(0, path.rfind('/') + 1);
}

struct Settings {
  std::string goods, deed;
};
const Settings& settings() {
  static const Settings all = [] {
    Settings out;
    std::ifstream in(folder() + "other-minor");
    std::getline(in, out.goods);
    std::getline(in, out.deed);
    return out;
  }();
  return all;
}

// Behind it nothing is mapped. Kept until the process ends, as the plugin is.
char* end_of_memory(size_t size) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const all = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED || mprotect(static_cast<char*>(all) + page, page, PROT_NONE) != 0) std::abort();
  return static_cast<char*>(all) + page - size;
}

// The struct as another minor has it. `least`: what an older one had.
template <class T>
const T* resized(const T& whole, size_t least) {
  const size_t size = settings().deed == "grown" ? sizeof whole + kGrowth : least;
  char* const out = end_of_memory(size);
  std::memset(out, 0x5a, size);  // what this minor does not know is anything
  std::memcpy(out, &whole, std::min(size, sizeof whole));
  const auto said = static_cast<uint32_t>(size);
  std::memcpy(out, &said, sizeof said);
  return reinterpret_cast<const T*>(out);
}

// -- what a describe answers: arrays of structs, each of them made once ---------------------------------

size_t least_of(const tenon_slot_decl&) { return sizeof(tenon_slot_decl); }
size_t least_of(const tenon_field&) { return TENON_END(tenon_field, shape); }

template <class T>
const T* const* resized_all(const T* const* all, uint32_t count) {
  static std::mutex lock;
  static std::map<const T*, const T*> made;
  static std::map<const T* const*, std::vector<const T*>> arrays;
  const std::lock_guard held(lock);
  std::vector<const T*>& out = arrays[all];
  out.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    const T*& one = made[all[i]];
    if (one == nullptr) one = resized(*all[i], least_of(*all[i]));
    out[i] = one;
  }
  return out.data();
}

template <class Table>
const Table& good() {
  static const auto* table = [] {
    constexpr bool kOptimizer = std::is_same_v<Table, tenon_optimizer>;
    return static_cast<const Table*>(g_good->get_interface(kOptimizer ? TENON_OPTIMIZER : TENON_DATA));
  }();
  return *table;
}

tenon_code describe_optimizer(const tenon_optimizer_state* state, tenon_optimizer_info* info,
                              tenon_error* error) {
  tenon_optimizer_info mine{};
  mine.struct_size = sizeof mine;
  const tenon_code code = good<tenon_optimizer>().describe(state, &mine, error);
  if (code != TENON_OK) return code;
  mine.slots = resized_all(mine.slots, mine.num_slots);
  tenon_fill(info, &mine);
  return code;
}

tenon_code describe_data(tenon_dataset* dataset, tenon_data_info* info, tenon_error* error) {
  tenon_data_info mine{};
  mine.struct_size = sizeof mine;
  const tenon_code code = good<tenon_data>().describe(dataset, &mine, error);
  if (code != TENON_OK) return code;
  mine.fields = resized_all(mine.fields, mine.num_fields);
  tenon_fill(info, &mine);
  return code;
}

// -- tables ---------------------------------------------------------------------------------------------

template <class Table>
void change(Table&) {}
void change(tenon_optimizer& table) { table.describe = describe_optimizer; }
void change(tenon_data& table) { table.describe = describe_data; }

template <class Table>
const void* table_of(const char* id, size_t least) {
  static const Table* const made = [id, least]() -> const Table* {
    const auto* const given = static_cast<const Table*>(g_good->get_interface(id));
    if (given == nullptr) return nullptr;
    Table whole = *given;
    change(whole);
    return resized(whole, least);
  }();
  return made;
}

// With the end of the last slot that must be there.
struct Row {
  const char* id;
  const void* (*table)(const char* id, size_t least);
  size_t least;
};
constexpr Row kRows[] = {
    {TENON_COMM, table_of<tenon_comm>, sizeof(tenon_comm)},
    {TENON_DATA, table_of<tenon_data>, TENON_END(tenon_data, read)},
    {TENON_FRONTEND, table_of<tenon_frontend>, sizeof(tenon_frontend)},
    {TENON_KERNELS, table_of<tenon_kernels>, TENON_END(tenon_kernels, copy)},
    {TENON_OPTIMIZER, table_of<tenon_optimizer>, sizeof(tenon_optimizer)},
    {TENON_PASS, table_of<tenon_pass>, sizeof(tenon_pass)},
    {TENON_SCHEDULE, table_of<tenon_schedule>, sizeof(tenon_schedule)},
    {TENON_SINK, table_of<tenon_sink>, sizeof(tenon_sink)},
};

const void* get_interface(const char* id) {
  std::ofstream(folder() + "used") << "used";
  for (const Row& row : kRows) {
    if (std::strcmp(row.id, id) == 0) return row.table(row.id, row.least);
  }
  return nullptr;
}

// -- options --------------------------------------------------------------------------------------------

size_t least_of(const tenon_option_decl& one) {
  if (one.min <= one.max) return sizeof one;
  if (one.choices != nullptr) return TENON_END(tenon_option_decl, choices);
  return one.fallback != nullptr ? TENON_END(tenon_option_decl, fallback) : TENON_END(tenon_option_decl, doc);
}

const tenon_option_decl* const* resized_options() {
  static std::vector<const tenon_option_decl*> all;
  for (uint64_t i = 0; i < g_good->num_options; ++i)
    all.push_back(resized(*g_good->options[i], least_of(*g_good->options[i])));
  return all.data();
}

// The plugin of this file's name.
[[gnu::constructor]] void load() {
  const std::string path = own_path();
  const std::string file = settings().goods + path.substr(path.rfind('/'));
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  g_good = static_cast<const tenon_plugin*>(dlsym(library, "tenon_plugin_v0"));
  g_self = *g_good;
  if (g_good->num_options > 0) g_self.options = resized_options();
  g_self.get_interface = get_interface;
}

}  // namespace

tenon_plugin g_self{};
