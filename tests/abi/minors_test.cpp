// Binaries of other minors, made up: every struct of the ABI that may grow is handed over cut behind each of
// its members, as an older side has it, and grown by 64 bytes, as a newer one has it, at the end of mapped
// memory, so that a byte read or written too far ends this program. A table has a row for each of them: who
// reads or fills it, and the member up to which it must reach. Members come from layout.golden, so that none
// is forgotten.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>

#include "host/plugins/interfaces.h"
#include "host/plugins/library.h"
#include "plugin_host.hpp"
#include "run/declarations.h"
#include "run/rendezvous/memory_rendezvous.h"

namespace tenon::test {
namespace {

constexpr size_t kGrowth = 64;

// -- what there is --------------------------------------------------------------------------------------

struct Member {
  std::string name;
  size_t end = 0;
};
struct Struct {
  size_t size = 0;
  std::vector<Member> members;
};

// The structs that begin with struct_size.
std::map<std::string, Struct> growing_structs() {
  std::map<std::string, Struct> all;
  std::ifstream golden(TENON_LAYOUT);
  std::string line, name;
  const std::regex head("struct (\\w+) (\\d+)"), member("  (\\d+) (\\d+) (.*)");
  for (std::smatch match; std::getline(golden, line);) {
    if (std::regex_match(line, match, head)) {
      name = match[1];
      all[name].size = std::stoull(match[2]);
    } else if (std::regex_match(line, match, member)) {
      const std::string declaration = match[3];
      std::smatch word;
      const bool slot = std::regex_search(declaration, word, std::regex("\\(\\*(\\w+)\\)"));
      if (!slot) std::regex_search(declaration, word, std::regex("(\\w+)(\\[\\w+\\])?$"));
      all[name].members.push_back({word[1], std::stoull(match[1]) + std::stoull(match[2])});
    }
  }
  std::erase_if(all, [](const auto& one) { return one.second.members[0].name != "struct_size"; });
  return all;
}

// Bytes whose end is the end of mapped memory (but for what alignment asks for).
class AtTheEnd {
 public:
  explicit AtTheEnd(size_t size) : size_(size), page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    all_ = static_cast<char*>(
        mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (all_ == MAP_FAILED || mprotect(all_ + page_, page_, PROT_NONE) != 0) throw std::runtime_error("mmap");
    std::memset(slack(), kSlack, padding());
  }
  ~AtTheEnd() { munmap(all_, 2 * page_); }
  AtTheEnd(const AtTheEnd&) = delete;
  AtTheEnd& operator=(const AtTheEnd&) = delete;
  char* get() const { return all_ + page_ - padding() - size_; }
  // Whether nobody has written between its end and that of the page.
  bool kept() const {
    return std::all_of(slack(), slack() + padding(), [](char c) { return c == kSlack; });
  }

 private:
  static constexpr char kSlack = 0x5c;
  size_t padding() const { return (8 - size_ % 8) % 8; }
  char* slack() const { return all_ + page_ - padding(); }
  size_t size_, page_;
  char* all_;
};

// A struct as a side of another minor has it.
template <class T>
class Other {
 public:
  Other(const T& whole, size_t size) : bytes_(size), size_(static_cast<uint32_t>(size)) {
    std::memset(bytes_.get(), 0x5a, size);  // what we do not know is anything
    std::memcpy(bytes_.get(), &whole, std::min(size, sizeof(T)));
    std::memcpy(bytes_.get(), &size_, sizeof size_);
  }
  T* get() const { return reinterpret_cast<T*>(bytes_.get()); }
  // After it was filled: nothing behind it was written, its size is its owner's, and what we do not know is
  // zero.
  std::string filled() const {
    if (!bytes_.kept()) return "wrote behind its end";
    if (std::memcmp(bytes_.get(), &size_, sizeof size_) != 0) return "set struct_size";
    for (size_t i = sizeof(T); i < size_; ++i)
      if (bytes_.get()[i] != 0) return "left byte " + std::to_string(i) + " as it was";
    return "";
  }

 private:
  AtTheEnd bytes_;
  uint32_t size_;
};

// -- who reads what -------------------------------------------------------------------------------------

// What came of a call: "" if it went well, else the code and the words.
std::string said(tenon_code code, const tenon_error& error) {
  if (code >= 0) return "";
  return std::to_string(code) + ": " +
         std::string(error.message, strnlen(error.message, sizeof error.message));
}
template <class T>
std::string said(const Result<T>& result) {
  return result.ok() ? "" : result.error().code + ": " + result.error().cause;
}
template <class Call>
std::string call(Call&& body) {
  tenon_error error = empty_error();
  return said(body(&error), error);
}

// The plugins that speak for their kinds, loaded once.
struct Plugins {
  MockHost host;
  LoadedPlugin adamw{plugin_file("optimizer", "adamw"), host}, kernels{plugin_file("kernels", "cpu"), host},
      text{plugin_file("data", "text"), host}, jsonl{plugin_file("sink", "jsonl"), host},
      local{plugin_file("comm", "local"), host}, schedule{plugin_file("schedule", "1f1b"), host},
      lua{plugin_file("frontend", "lua"), host};
  TempFolder folder;
  OptionValues adamw_options{adamw.plugin()}, kernels_options{kernels.plugin()}, text_options{text.plugin()},
      jsonl_options{jsonl.plugin()};
  std::string run = folder.path(), file = folder.path("text.txt");

  Plugins() {
    std::ofstream(file) << "a text of some length, for samples of four tokens";
    text_options.set("files", std::vector<std::string>{file});
  }
};
Plugins& plugins() {
  static Plugins all;
  return all;
}

tenon_optimizer_config optimizer_config(const tenon_host* host) {
  return {sizeof(tenon_optimizer_config), plugins().adamw_options.size(), host,
          plugins().adamw_options.data()};
}
tenon_kernels_config kernels_config(const tenon_host* host) {
  const auto& options = plugins().kernels_options;
  return {sizeof(tenon_kernels_config), options.size(), host, options.data(), nullptr, 0, 0};
}
tenon_data_config data_config() {
  Plugins& p = plugins();
  return {sizeof(tenon_data_config), p.text_options.size(), p.host.table(), p.text_options.data(), "", 4};
}
tenon_comm_config comm_config(const tenon_rendezvous* rendezvous) {
  return {sizeof(tenon_comm_config),
          0,
          plugins().host.table(),
          nullptr,
          0,
          1,
          {kDLCPU, 0},
          1'000'000'000,
          rendezvous};
}

const tenon_optimizer& optimizer() { return plugins().adamw.table<tenon_optimizer>(TENON_OPTIMIZER); }
const tenon_kernels& kernels() { return plugins().kernels.table<tenon_kernels>(TENON_KERNELS); }
const tenon_data& data() { return plugins().text.table<tenon_data>(TENON_DATA); }
const tenon_comm& comm() { return plugins().local.table<tenon_comm>(TENON_COMM); }
const tenon_sink& sink() { return plugins().jsonl.table<tenon_sink>(TENON_SINK); }

std::string open_optimizer(const tenon_optimizer_config* config) {
  tenon_optimizer_state* state = nullptr;
  const std::string out = call([&](auto* e) { return optimizer().open(config, &state, e); });
  optimizer().close(state);
  return out;
}

// One step of one element with any of its structs as another minor has them.
std::string step(const tenon_host* host, tenon_update* update, const tenon_step_scalars* scalars) {
  const auto config = optimizer_config(host);
  tenon_optimizer_state* state = nullptr;
  std::string out = call([&](auto* e) { return optimizer().open(&config, &state, e); });
  const tenon_stream stream{{kDLCPU, 0}, nullptr};
  if (out.empty())
    out = call([&](auto* e) { return optimizer().step(state, &stream, &update, 1, scalars, e); });
  optimizer().close(state);
  return out;
}

// Large enough for more than one thread.
struct Piece {
  static constexpr size_t kCount = size_t{1} << 18;
  std::vector<float> param = std::vector<float>(kCount, 1), grad = param, first = param, second = param;
  void* slots[2] = {first.data(), second.data()};
  tenon_update update{};
  tenon_step_scalars scalars{sizeof scalars, 0, 1, 0.1, 1.0};
  Piece() {
    update.struct_size = sizeof update;
    update.dtype = TENON_F32;
    update.count = kCount;
    update.rows = 1;
    update.param = param.data();
    update.grad = grad.data();
    update.slots = slots;
  }
};

std::string write_record(const tenon_record* record) {
  Plugins& p = plugins();
  const tenon_sink_config config = {
      sizeof config, p.jsonl_options.size(), p.host.table(), p.jsonl_options.data(), p.run.c_str(), "run",
      "{}"};
  tenon_sink_state* state = nullptr;
  std::string out = call([&](auto* e) { return sink().open(&config, &state, e); });
  if (out.empty()) out = call([&](auto* e) { return sink().write(state, record, e); });
  sink().close(state);
  return out;
}
tenon_record record_of(const tenon_metric* const* metric, const tenon_text* const* text) {
  return {sizeof(tenon_record), 1, "save", 1, 1, metric, text, 1, 0};
}

struct Sqnorm {
  int64_t dims[1] = {4};
  tenon_shape in{TENON_F32, 1, dims}, out{TENON_F64, 0, nullptr};
  tenon_kernel_desc desc{sizeof desc, TENON_KERNEL_EXACT, "sqnorm", &in, &out, nullptr, 1, 1, 0, -1};
};

template <class Body>
std::string in_domain(const tenon_rendezvous* rendezvous, Body&& body) {
  const auto config = comm_config(rendezvous);
  tenon_comm_domain* domain = nullptr;
  std::string out = call([&](auto* e) { return comm().domain_open(&config, &domain, e); });
  if (out.empty()) out = body(domain);
  comm().domain_close(domain);
  return out;
}

// A table of a plugin, whose functions nobody calls.
template <class T>
T table_of() {
  T out{};
  std::memset(static_cast<void*>(&out), 1, sizeof out);
  const uint32_t size = sizeof out, kind = kDLCPU, none = 0;
  std::memcpy(&out, &size, sizeof size);
  const InterfaceSpec& spec = interface_spec<T>();
  char* const bytes = reinterpret_cast<char*>(&out);
  if (spec.device_type_offset != 0) std::memcpy(bytes + spec.device_type_offset, &kind, sizeof kind);
  if (spec.flags_offset != 0) std::memcpy(bytes + spec.flags_offset, &none, sizeof none);
  return out;
}
template <class T>
std::string read_table(size_t size) {
  const Other<T> other(table_of<T>(), size);
  return said(read_interface(interface_spec<T>(), other.get(), TENON_ABI_MINOR + 1, "here"));
}

// What an optimizer and a dataset say whose declarations are another minor's.
const tenon_slot_decl* const* declared_slots = nullptr;
const tenon_field* const* declared_fields = nullptr;

std::string describe_slot(size_t size) {
  const Other<tenon_slot_decl> other({sizeof(tenon_slot_decl), TENON_F32, "momentum"}, size);
  const tenon_slot_decl* list[] = {other.get()};
  declared_slots = list;
  tenon_optimizer table = table_of<tenon_optimizer>();
  table.describe = [](const tenon_optimizer_state*, tenon_optimizer_info* info, tenon_error*) -> tenon_code {
    const tenon_optimizer_info mine = {sizeof mine, 1, declared_slots, TENON_GRANULE_ELEMENT, 0};
    tenon_fill(info, &mine);
    return TENON_OK;
  };
  OptimizerUse use;
  use.table = &table;
  return said(describe(use, nullptr));
}

std::string describe_field(size_t size) {
  static constexpr int64_t kDims[] = {4};
  const Other<tenon_field> other({sizeof(tenon_field), 0, "tokens", {TENON_I32, 1, kDims}, 256}, size);
  const tenon_field* list[] = {other.get()};
  declared_fields = list;
  tenon_data table = table_of<tenon_data>();
  table.describe = [](tenon_dataset*, tenon_data_info* info, tenon_error*) -> tenon_code {
    const tenon_data_info mine = {sizeof mine, 1, 9, declared_fields, {1}};
    tenon_fill(info, &mine);
    return TENON_OK;
  };
  Plugged<tenon_data> plugin;
  plugin.table = &table;
  return said(describe(plugin, nullptr));
}

tenon_plugin plugin_of() {
  tenon_plugin out = plugins().adamw.plugin();
  out.struct_size = sizeof out;
  return out;
}

struct Row {
  // The struct up to which it must reach; "" if each size will do that leaves room for one member more than
  // struct_size.
  const char* least;
  std::function<std::string(size_t size)> hand_over;  // "" if it went well, else what was said
};

const std::map<std::string, Row>& rows() {
  static const std::map<std::string, Row> all = {
      // A plugin's, read by the host.
      {"tenon_plugin",
       {"get_interface",
        [](size_t size) {
          const Other<tenon_plugin> other(plugin_of(), size);
          return said(check_plugin(*other.get(), "here", ""));
        }}},
      {"tenon_option_decl",
       {"doc",
        [](size_t size) {
          const Other<tenon_option_decl> other(*plugins().adamw.plugin().options[0], size);
          const tenon_option_decl* list[] = {other.get()};
          const Status checked = check_declarations(list, "here");
          if (!checked.ok()) return said(checked);
          const Declarations mine(list);
          return mine.all()[0]->struct_size == sizeof(tenon_option_decl) ? std::string() : "copied short";
        }}},
      {"tenon_comm", {"release", read_table<tenon_comm>}},
      {"tenon_data", {"read", read_table<tenon_data>}},
      {"tenon_frontend", {"evaluate", read_table<tenon_frontend>}},
      {"tenon_kernels", {"copy", read_table<tenon_kernels>}},
      {"tenon_optimizer", {"step", read_table<tenon_optimizer>}},
      {"tenon_schedule", {"rows", read_table<tenon_schedule>}},
      {"tenon_sink", {"write", read_table<tenon_sink>}},
      {"tenon_slot_decl", {"name", describe_slot}},
      {"tenon_field", {"shape", describe_field}},
      // The host's, filled by a plugin.
      {"tenon_optimizer_info",
       {"",
        [](size_t size) {
          const auto config = optimizer_config(plugins().host.table());
          const Other<tenon_optimizer_info> other({}, size);
          tenon_optimizer_state* state = nullptr;
          optimizer().open(&config, &state, nullptr);
          const std::string out = call([&](auto* e) { return optimizer().describe(state, other.get(), e); });
          optimizer().close(state);
          return out + other.filled();
        }}},
      {"tenon_data_info",
       {"",
        [](size_t size) {
          const auto config = data_config();
          const Other<tenon_data_info> other({}, size);
          tenon_dataset* dataset = nullptr;
          std::string out = call([&](auto* e) { return data().open(&config, &dataset, e); });
          if (out.empty()) out = call([&](auto* e) { return data().describe(dataset, other.get(), e); });
          data().close(dataset);
          return out + other.filled();
        }}},
      {"tenon_kernel_info",
       {"",
        [](size_t size) {
          const Sqnorm op;
          const auto config = kernels_config(plugins().host.table());
          const Other<tenon_kernel_info> other({}, size);
          const std::string out =
              call([&](auto* e) { return kernels().describe(&config, &op.desc, other.get(), e); });
          return out + other.filled();
        }}},
      {"tenon_error",
       {"",
        [](size_t size) {
          const Other<tenon_error> other({}, size);
          auto config = kernels_config(plugins().host.table());
          config.device_id = 7;
          tenon_device* device = nullptr;
          const tenon_code code = kernels().open(&config, &device, other.get());
          to_abi(Error{"E011", "the host says something too", "", "", TENON_E_IO}, other.get());
          return code == TENON_E_ARGUMENT ? other.filled() : "opened";
        }}},
      // The host's, read by a plugin.
      {"tenon_optimizer_config",
       {"options",
        [](size_t size) {
          return open_optimizer(
              Other<tenon_optimizer_config>(optimizer_config(plugins().host.table()), size).get());
        }}},
      {"tenon_kernels_config",
       {"reserved",
        [](size_t size) {
          const Other<tenon_kernels_config> other(kernels_config(plugins().host.table()), size);
          tenon_device* device = nullptr;
          const std::string out = call([&](auto* e) { return kernels().open(other.get(), &device, e); });
          kernels().close(device);
          return out;
        }}},
      {"tenon_data_config",
       {"context",
        [](size_t size) {
          const Other<tenon_data_config> other(data_config(), size);
          tenon_dataset* dataset = nullptr;
          const std::string out = call([&](auto* e) { return data().open(other.get(), &dataset, e); });
          data().close(dataset);
          return out;
        }}},
      {"tenon_sink_config",
       {"recipe",
        [](size_t size) {
          Plugins& p = plugins();
          const tenon_sink_config config = {sizeof config,
                                            p.jsonl_options.size(),
                                            p.host.table(),
                                            p.jsonl_options.data(),
                                            p.run.c_str(),
                                            "run",
                                            "{}"};
          const Other<tenon_sink_config> other(config, size);
          tenon_sink_state* state = nullptr;
          const std::string out = call([&](auto* e) { return sink().open(other.get(), &state, e); });
          sink().close(state);
          return out;
        }}},
      {"tenon_comm_config",
       {"rendezvous",
        [](size_t size) {
          run::MemoryRendezvous inner;
          const run::RendezvousTable table(inner);
          const Other<tenon_comm_config> other(comm_config(table.table()), size);
          tenon_comm_domain* domain = nullptr;
          const std::string out = call([&](auto* e) { return comm().domain_open(other.get(), &domain, e); });
          comm().domain_close(domain);
          return out;
        }}},
      {"tenon_schedule_config",
       {"reserved",
        [](size_t size) {
          const tenon_schedule_config config = {
              sizeof config, 0, plugins().host.table(), nullptr, 2, 2, 4, 0};
          const Other<tenon_schedule_config> other(config, size);
          const auto& table = plugins().schedule.table<tenon_schedule>(TENON_SCHEDULE);
          const auto nothing = [](void*, int32_t, const tenon_row*) {};
          const int32_t owner = table.owner(other.get(), 1);
          const std::string out = call([&](auto* e) { return table.rows(other.get(), nothing, nullptr, e); });
          return out.empty() && owner != 1 ? "the owner is another" : out;
        }}},
      {"tenon_frontend_config",
       {"overrides",
        [](size_t size) {
          const tenon_frontend_config config = {
              sizeof config, 0, plugins().host.table(), "/nonexistent.lua", "/nonexistent", nullptr};
          const Other<tenon_frontend_config> other(config, size);
          const auto nothing = [](void*, const char*, uint64_t) {};
          return call([&](auto* e) {
            return plugins()
                .lua.table<tenon_frontend>(TENON_FRONTEND)
                .evaluate(other.get(), nothing, nullptr, e);
          });
        }}},
      {"tenon_kernel_desc",
       {"inplace",
        [](size_t size) {
          const Sqnorm op;
          const auto config = kernels_config(plugins().host.table());
          tenon_kernel_info info{};
          info.struct_size = sizeof info;
          const Other<tenon_kernel_desc> other(op.desc, size);
          return call([&](auto* e) { return kernels().describe(&config, other.get(), &info, e); });
        }}},
      {"tenon_comm_op",
       {"reserved",
        [](size_t size) {
          run::MemoryRendezvous inner;
          const run::RendezvousTable table(inner);
          return in_domain(table.table(), [&](tenon_comm_domain* domain) {
            float value = 1;
            tenon_comm_op op{};
            op.struct_size = sizeof op;
            op.dtype = TENON_F32;
            op.src = op.dst = &value;
            op.count = 1;
            const Other<tenon_comm_op> other(op, size);
            const tenon_comm_op* const ops[] = {other.get()};
            const int32_t me = 0;
            tenon_comm_group* group = nullptr;
            tenon_comm_plan* plan = nullptr;
            std::string out = call([&](auto* e) { return comm().group_open(domain, &me, 1, &group, e); });
            if (out.empty()) out = call([&](auto* e) { return comm().prepare(group, ops, 1, &plan, e); });
            comm().release(plan);
            comm().group_close(group);
            return out;
          });
        }}},
      {"tenon_update",
       {"slots",
        [](size_t size) {
          const Piece piece;
          return step(plugins().host.table(), Other<tenon_update>(piece.update, size).get(), &piece.scalars);
        }}},
      {"tenon_step_scalars",
       {"grad_scale",
        [](size_t size) {
          Piece piece;
          return step(plugins().host.table(), &piece.update,
                      Other<tenon_step_scalars>(piece.scalars, size).get());
        }}},
      {"tenon_metric",
       {"value",
        [](size_t size) {
          const Other<tenon_metric> other({sizeof(tenon_metric), 0, "loss", 1}, size);
          const tenon_metric* const metrics[] = {other.get()};
          tenon_record record = record_of(metrics, nullptr);
          record.num_texts = 0;
          return write_record(&record);
        }}},
      {"tenon_text",
       {"text",
        [](size_t size) {
          const Other<tenon_text> other({sizeof(tenon_text), 0, "path", "here"}, size);
          const tenon_text* const texts[] = {other.get()};
          tenon_record record = record_of(nullptr, texts);
          record.num_metrics = 0;
          return write_record(&record);
        }}},
      {"tenon_record",
       {"reserved",
        [](size_t size) {
          const tenon_metric metric = {sizeof metric, 0, "loss", 1};
          const tenon_text text = {sizeof text, 0, "path", "here"};
          const tenon_metric* const metrics[] = {&metric};
          const tenon_text* const texts[] = {&text};
          return write_record(Other<tenon_record>(record_of(metrics, texts), size).get());
        }}},
      // The host's tables.
      {"tenon_host",
       {"",  // without threads the parts run in order
        [](size_t size) {
          Piece piece;
          const Other<tenon_host> other(*plugins().host.table(), size);
          const tenon_code init = plugins().adamw.plugin().init(other.get(), nullptr);
          return init == TENON_OK ? step(other.get(), &piece.update, &piece.scalars) : "no init";
        }}},
      {"tenon_parallel",
       {"",
        [](size_t size) {
          static const tenon_parallel* given;
          const auto* whole = static_cast<const tenon_parallel*>(
              plugins().host.table()->get_interface(plugins().host.table(), TENON_HOST_PARALLEL));
          const Other<tenon_parallel> other(*whole, size);
          given = other.get();
          tenon_host host = *plugins().host.table();
          host.get_interface = [](const tenon_host*, const char*) -> const void* { return given; };
          Piece piece;
          return step(&host, &piece.update, &piece.scalars);
        }}},
      {"tenon_rendezvous",
       {"get",
        [](size_t size) {
          run::MemoryRendezvous inner;
          const run::RendezvousTable table(inner);
          const Other<tenon_rendezvous> other(*table.table(), size);
          return in_domain(other.get(), [](tenon_comm_domain*) { return std::string(); });
        }}},
  };
  return all;
}

// Covered elsewhere, or read by nobody here.
const std::map<std::string, const char*>& others() {
  static const std::map<std::string, const char*> all = {
      {"tenon_memory", "no plugin of this tree asks for it"},
      {"tenon_options", "tests/embed"},
      {"tenon_run_options", "tests/embed"},
      {"tenon_step_result", "tests/embed"},
      {"tenon_eval_result", "tests/embed"},
      {"tenon_info", "tests/embed"},
      {"tenon_batch", "tests/embed"},
      {"tenon_tensor_info", "tests/embed"},
      {"tenon_check_result", "tests/embed"},
  };
  return all;
}

TEST(Minors, each_struct_that_may_grow_has_a_row) {
  std::set<std::string> named;
  for (const auto& [name, row] : rows()) named.insert(name);
  for (const auto& [name, why] : others()) EXPECT_TRUE(named.insert(name).second) << name;
  std::set<std::string> there;
  for (const auto& [name, one] : growing_structs()) there.insert(name);
  EXPECT_EQ(named, there);
}

class Minors : public testing::TestWithParam<std::string> {};

size_t end_of(const Struct& of, const std::string& member) {
  for (const Member& one : of.members)
    if (one.name == member) return one.end;
  throw std::runtime_error("no member " + member);
}

// Cut behind each member: it runs where all is there that must be, and says what is missing where not. Grown,
// it runs as if it were not.
TEST_P(Minors, struct_of_any_size_runs_or_is_refused_in_words) {
  const Struct layout = growing_structs().at(GetParam());
  const Row& row = rows().at(GetParam());
  const size_t least = *row.least == '\0' ? layout.members[1].end : end_of(layout, row.least);
  for (const Member& member : layout.members) {
    SCOPED_TRACE("cut behind " + member.name);
    if (member.end < 2 * sizeof(uint32_t)) continue;
    const std::string said = row.hand_over(member.end);
    if (GetParam() == "tenon_data" && member.name == "encode") {
      EXPECT_EQ(said, "A005: tenon.data/1 has encode without decode");
    } else if (member.end >= least) {
      EXPECT_EQ(said, "");
    } else {
      EXPECT_GT(said.size(), 20u) << "refused, and told why: " << said;
    }
  }
  EXPECT_EQ(row.hand_over(layout.size), "") << "whole";
  EXPECT_EQ(row.hand_over(layout.size + kGrowth), "") << "grown";
}

INSTANTIATE_TEST_SUITE_P(All, Minors, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const auto& [name, row] : rows()) names.push_back(name);
                           return names;
                         }()),
                         [](const auto& info) { return info.param; });

// That the end of memory is one: a plugin that ignores struct_size dies on it.
TEST(MinorsDeathTest, a_plugin_that_ignores_struct_size_dies_at_the_end_of_memory) {
  const auto ignore_the_size = [] {
    const Other<tenon_kernel_info> other({}, 8);
    *other.get() = {sizeof(tenon_kernel_info), TENON_KERNEL_EXACT, 0, 0, 0};
  };
  EXPECT_DEATH(ignore_the_size(), "");
}

}  // namespace
}  // namespace tenon::test
