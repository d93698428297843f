// tenon_sdk/comm/table.hpp - the tenon_comm table of a plugin whose domains, groups and plans are C++
// classes. Header-only.
//
//   class Domain : public tenon_comm_domain {
//     void* allocate(uint64_t bytes);  void release(void* pointer);  void abort();  // [thread-safe]
//     void start(Plan&);
//     tenon_code test(Plan&);                      // TENON_OK, TENON_PENDING, or throws
//     void wait(Plan&, int64_t timeout_ns);        // < 0: the domain's
//     void finish(Plan&);                          // before a release; throws nothing
//   };
//   class Group : public tenon_comm_group { Group(Domain&, std::vector<int> members); };
//   class Plan : public tenon_comm_plan {
//     Plan(Group&, const tenon_comm_op* const* ops, uint32_t num_ops);  Domain& domain();
//   };
//   constexpr tenon_comm kTable = comm::Table<Domain, Group, Plan, open_domain>::make(flags);
//
// All may throw; sdk::guard() stands at the border.
#pragma once

#include <string>
#include <vector>

#include "tenon/comm.h"
#include "tenon_sdk/plugin.hpp"

struct tenon_comm_domain {};
struct tenon_comm_group {};
struct tenon_comm_plan {};

namespace tenon::comm {

// What holds for every plugin that moves CPU memory. Throws; `plugin` is its id.
inline void check_config(const tenon_comm_config& config, const std::string& plugin) {
  if (config.world < 1 || config.rank < 0 || config.rank >= config.world) {
    throw sdk::Failure(TENON_E_ARGUMENT, "rank " + std::to_string(config.rank) + " in a world of " +
                                             std::to_string(config.world));
  }
  if (config.rendezvous == nullptr) throw sdk::Failure(TENON_E_ARGUMENT, "the rendezvous is NULL");
  if (!TENON_FN(config.rendezvous, tenon_rendezvous, set) ||
      !TENON_FN(config.rendezvous, tenon_rendezvous, get)) {
    throw sdk::Failure(TENON_E_VERSION, "the host's rendezvous has no set() or no get()");
  }
  if (config.device.device_type != kDLCPU) {
    throw sdk::Failure(TENON_E_UNSUPPORTED, plugin + " moves CPU memory only, not that of device type " +
                                                std::to_string(static_cast<int>(config.device.device_type)));
  }
}

template <class Domain, class Group, class Plan, Domain* (*kOpen)(const tenon_comm_config&)>
class Table {
 public:
  static constexpr tenon_comm make(uint32_t flags) {
    return {sizeof(tenon_comm), flags,        domain_open, domain_close, alloc, free_memory,
            group_open,         group_close,  prepare,     start,        test,  wait_host,
            wait_stream,        abort_domain, release_plan};
  }

 private:
  static Domain& domain_of(tenon_comm_domain* domain) { return *static_cast<Domain*>(domain); }
  static Plan& plan_of(tenon_comm_plan* plan) { return *static_cast<Plan*>(plan); }

  static tenon_code domain_open(const tenon_comm_config* config, tenon_comm_domain** out,
                                tenon_error* error) {
    return sdk::guard(error,
                      [&] { *out = kOpen(sdk::read(config, TENON_END(tenon_comm_config, rendezvous))); });
  }
  static void domain_close(tenon_comm_domain* domain) { delete static_cast<Domain*>(domain); }

  static tenon_code alloc(tenon_comm_domain* domain, uint64_t bytes, void** out, tenon_error* error) {
    return sdk::guard(error, [&] { *out = domain_of(domain).allocate(bytes); });
  }
  static void free_memory(tenon_comm_domain* domain, void* pointer) { domain_of(domain).release(pointer); }

  static tenon_code group_open(tenon_comm_domain* domain, const int32_t* members, uint32_t num_members,
                               tenon_comm_group** out, tenon_error* error) {
    return sdk::guard(error, [&] {
      *out = new Group(domain_of(domain), std::vector<int>(members, members + num_members));
    });
  }
  static void group_close(tenon_comm_group* group) { delete static_cast<Group*>(group); }

  static tenon_code prepare(tenon_comm_group* group, const tenon_comm_op* const* ops, uint32_t num_ops,
                            tenon_comm_plan** out, tenon_error* error) {
    return sdk::guard(error, [&] { *out = new Plan(*static_cast<Group*>(group), ops, num_ops); });
  }
  static tenon_code start(tenon_comm_plan* plan, const tenon_stream*, tenon_error* error) {
    return sdk::guard(error, [&] { plan_of(plan).domain().start(plan_of(plan)); });
  }
  static tenon_code test(tenon_comm_plan* plan, tenon_error* error) {
    return sdk::guard(error, [&] { return plan_of(plan).domain().test(plan_of(plan)); });
  }
  static tenon_code wait_host(tenon_comm_plan* plan, int64_t timeout_ns, tenon_error* error) {
    return sdk::guard(error, [&] { plan_of(plan).domain().wait(plan_of(plan), timeout_ns); });
  }
  static tenon_code wait_stream(tenon_comm_plan* plan, const tenon_stream*, tenon_error* error) {
    return wait_host(plan, -1, error);  // the calling thread is the stream
  }
  static void abort_domain(tenon_comm_domain* domain) { domain_of(domain).abort(); }
  static void release_plan(tenon_comm_plan* plan) {
    if (plan == nullptr) return;
    plan_of(plan).domain().finish(plan_of(plan));
    delete static_cast<Plan*>(plan);
  }
};

}  // namespace tenon::comm
