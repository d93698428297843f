// A comm plugin as tests use it: loaded from its file, its C table behind RAII classes that throw.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tenon/comm.h"
#include "tenon/plugin.h"
#include "tenon_sdk/comm/op.hpp"

namespace tenon::test {

// A code that the plugin returned, with its message.
class CommError : public std::runtime_error {
 public:
  CommError(tenon_code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  tenon_code code() const { return code_; }

 private:
  tenon_code code_;
};

inline tenon_error empty_error() {
  tenon_error error{};
  error.struct_size = sizeof error;
  return error;
}

inline void check(tenon_code code, const tenon_error& error) {
  if (code < 0) throw CommError(code, error.message);
}

// The plugin stays loaded until the process ends.
inline const tenon_comm& load_comm(const std::string& file) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) throw std::runtime_error(dlerror());
  const auto* plugin = static_cast<const tenon_plugin*>(dlsym(library, "tenon_plugin_v0"));
  if (plugin == nullptr) throw std::runtime_error(file + " exports no tenon_plugin_v0");
  tenon_error error = empty_error();
  check(plugin->init(nullptr, &error), error);
  const auto* table = static_cast<const tenon_comm*>(plugin->get_interface(TENON_COMM));
  if (table == nullptr) throw std::runtime_error(file + " has no " TENON_COMM);
  return *table;
}

class Domain {
 public:
  struct Settings {
    int rank = 0;
    int world = 1;
    int64_t timeout_ns = 20'000'000'000;
    std::string tls;
    bool reachable = false;  // operations are done in memory from alloc: see Domain::place
  };
  Domain(const tenon_comm& table, const tenon_rendezvous* rendezvous, const Settings& settings)
      : table_(table), settings_(settings) {
    tenon_option tls{};
    tls.key = "tls";
    tls.kind = TENON_STRING;
    tls.s = settings_.tls.c_str();
    const tenon_comm_config config{.struct_size = sizeof config,
                                   .num_options = 1,
                                   .host = nullptr,
                                   .options = &tls,
                                   .rank = settings.rank,
                                   .world = settings.world,
                                   .device = {kDLCPU, 0},
                                   .timeout_ns = settings.timeout_ns,
                                   .rendezvous = rendezvous};
    tenon_error error = empty_error();
    check(table_.domain_open(&config, &domain_, &error), error);
    if (settings_.reachable) check(table_.alloc(domain_, kArena, &arena_, &error), error);
  }
  ~Domain() {
    if (arena_ != nullptr) table_.free(domain_, arena_);
    table_.domain_close(domain_);
  }
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  const tenon_comm& table() const { return table_; }
  tenon_comm_domain* get() const { return domain_; }
  int rank() const { return settings_.rank; }
  int world() const { return settings_.world; }
  void abort() const { table_.abort(domain_); }
  bool reachable() const { return arena_ != nullptr; }
  // The next place for so many bytes in memory that peers reach; goes round, so nothing may stay for long.
  std::byte* place(size_t bytes) const {
    const size_t size = (bytes + 63) / 64 * 64;
    if (size > kArena) throw std::runtime_error("the arena of the tests is too small");
    if (used_ + size > kArena) used_ = 0;
    used_ += size;
    return static_cast<std::byte*>(arena_) + used_ - size;
  }

 private:
  static constexpr size_t kArena = 64 << 20;
  const tenon_comm& table_;
  const Settings settings_;
  tenon_comm_domain* domain_ = nullptr;
  void* arena_ = nullptr;
  mutable size_t used_ = 0;
};

class Group {
 public:
  Group(const Domain& domain, std::vector<int32_t> members) : domain_(domain), members_(std::move(members)) {
    tenon_error error = empty_error();
    check(domain.table().group_open(domain.get(), members_.data(), static_cast<uint32_t>(members_.size()),
                                    &group_, &error),
          error);
    for (size_t i = 0; i < members_.size(); ++i) {
      if (members_[i] == domain.rank()) me_ = static_cast<int>(i);
    }
  }
  ~Group() { domain_.table().group_close(group_); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  const Domain& domain() const { return domain_; }
  tenon_comm_group* get() const { return group_; }
  int size() const { return static_cast<int>(members_.size()); }
  int me() const { return me_; }
  int rank_of(int member) const { return members_[static_cast<size_t>(member)]; }

 private:
  const Domain& domain_;
  const std::vector<int32_t> members_;
  tenon_comm_group* group_ = nullptr;
  int me_ = -1;
};

inline std::vector<int32_t> all_ranks(int world) {
  std::vector<int32_t> out;
  for (int r = 0; r < world; ++r) out.push_back(r);
  return out;
}

// An operation with its counts owned.
struct OpSpec {
  uint32_t kind = TENON_COMM_BARRIER;
  uint32_t dtype = TENON_F32;
  const void* src = nullptr;
  void* dst = nullptr;
  uint64_t count = 0;
  std::vector<uint64_t> counts = {};
  int32_t peer = 0;
  uint32_t reduce = TENON_SUM;
};

// In a reachable domain the operands are copied into memory from alloc at start, and the results back after
// the wait.
class Plan {
 public:
  Plan(const Group& group, std::vector<OpSpec> specs)
      : table_(group.domain().table()), specs_(std::move(specs)) {
    std::vector<tenon_comm_op> ops;
    for (const OpSpec& s : specs_) {
      ops.push_back({sizeof(tenon_comm_op), s.kind, s.reduce, s.dtype, s.src, s.dst, s.count,
                     s.counts.empty() ? nullptr : s.counts.data(), s.peer, 0});
      if (group.domain().reachable()) move(group, ops.back());
    }
    std::vector<const tenon_comm_op*> pointers;
    for (const tenon_comm_op& op : ops) pointers.push_back(&op);
    tenon_error error = empty_error();
    check(
        table_.prepare(group.get(), pointers.data(), static_cast<uint32_t>(pointers.size()), &plan_, &error),
        error);
  }
  ~Plan() { table_.release(plan_); }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  void start() {
    for (const Copy& c : before_) std::memcpy(c.to, c.from, c.bytes);
    const tenon_stream stream{{kDLCPU, 0}, nullptr};
    tenon_error error = empty_error();
    check(table_.start(plan_, &stream, &error), error);
  }
  bool test() {
    tenon_error error = empty_error();
    const tenon_code code = table_.test(plan_, &error);
    check(code, error);
    return code == TENON_OK;
  }
  void wait(int64_t timeout_ns = -1) {
    tenon_error error = empty_error();
    check(table_.wait_host(plan_, timeout_ns, &error), error);
    for (const Copy& c : after_) std::memcpy(c.to, c.from, c.bytes);
  }
  void run() {
    start();
    wait();
  }

 private:
  struct Copy {
    const void* from;
    void* to;
    size_t bytes;
  };
  void move(const Group& group, tenon_comm_op& op) {
    const comm::Op checked = comm::check_op(op, group.me(), group.size());
    const size_t reads = comm::elements_read(checked) * checked.element;
    const size_t writes = comm::elements_written(checked) * checked.element;
    const bool in_place = op.src == op.dst;
    if (writes > 0) {
      std::byte* place = group.domain().place(writes);
      after_.push_back({place, op.dst, writes});
      op.dst = place;
    }
    if (reads == 0) return;
    std::byte* place = in_place ? static_cast<std::byte*>(op.dst) : group.domain().place(reads);
    before_.push_back({op.src, place, reads});
    op.src = place;
  }

  const tenon_comm& table_;
  const std::vector<OpSpec> specs_;
  std::vector<Copy> before_, after_;
  tenon_comm_plan* plan_ = nullptr;
};

}  // namespace tenon::test
