// comm/ucx: collectives among processes and hosts over UCX's tagged messages.
#include <ucs/debug/log_def.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "domain.h"
#include "tenon/comm.h"
#include "tenon_sdk/plugin.hpp"

namespace {

using namespace tenon::comm_ucx;
using tenon::sdk::Failure;
using tenon::sdk::guard;

Domain& domain_of(tenon_comm_domain* domain) { return *static_cast<Domain*>(domain); }
Plan& plan_of(tenon_comm_plan* plan) { return *static_cast<Plan*>(plan); }

void check_config(const tenon_comm_config& config) {
  if (config.world < 1 || config.rank < 0 || config.rank >= config.world) {
    throw Failure(TENON_E_ARGUMENT,
                  "rank " + std::to_string(config.rank) + " in a world of " + std::to_string(config.world));
  }
  if (config.world > 65535) throw Failure(TENON_E_UNSUPPORTED, "comm/ucx joins at most 65535 ranks");
  if (config.rendezvous == nullptr) throw Failure(TENON_E_ARGUMENT, "the rendezvous is NULL");
  if (config.device.device_type != kDLCPU) {
    throw Failure(TENON_E_UNSUPPORTED, "comm/ucx moves CPU memory only, not that of device type " +
                                           std::to_string(static_cast<int>(config.device.device_type)));
  }
}

tenon_code domain_open(const tenon_comm_config* config, tenon_comm_domain** out, tenon_error* error) {
  return guard(error, [&] {
    check_config(*config);
    *out = new Domain(*config, tenon::sdk::Options(config->options, config->num_options).string("tls"));
  });
}

void domain_close(tenon_comm_domain* domain) { delete static_cast<Domain*>(domain); }

tenon_code alloc(tenon_comm_domain* domain, uint64_t bytes, void** out, tenon_error* error) {
  return guard(error, [&] { *out = domain_of(domain).allocate(bytes); });
}

void release_memory(tenon_comm_domain* domain, void* pointer) { domain_of(domain).release(pointer); }

tenon_code group_open(tenon_comm_domain* domain, const int32_t* members, uint32_t num_members,
                      tenon_comm_group** out, tenon_error* error) {
  return guard(
      error, [&] { *out = new Group(domain_of(domain), std::vector<int>(members, members + num_members)); });
}

void group_close(tenon_comm_group* group) { delete static_cast<Group*>(group); }

tenon_code prepare(tenon_comm_group* group, const tenon_comm_op* const* ops, uint32_t num_ops,
                   tenon_comm_plan** out, tenon_error* error) {
  return guard(error, [&] { *out = new Plan(*static_cast<Group*>(group), ops, num_ops); });
}

tenon_code start(tenon_comm_plan* plan, const tenon_stream*, tenon_error* error) {
  return guard(error, [&] { plan_of(plan).domain().start(plan_of(plan)); });
}

tenon_code test(tenon_comm_plan* plan, tenon_error* error) {
  return guard(error, [&] { return plan_of(plan).domain().test(plan_of(plan)); });
}

tenon_code wait_host(tenon_comm_plan* plan, int64_t timeout_ns, tenon_error* error) {
  return guard(error, [&] { plan_of(plan).domain().wait(plan_of(plan), timeout_ns); });
}

tenon_code wait_stream(tenon_comm_plan* plan, const tenon_stream*, tenon_error* error) {
  return wait_host(plan, -1, error);  // the calling thread is the stream
}

void abort_domain(tenon_comm_domain* domain) { domain_of(domain).abort(); }

void release_plan(tenon_comm_plan* plan) {
  if (plan == nullptr) return;
  plan_of(plan).domain().finish(plan_of(plan));
  delete static_cast<Plan*>(plan);
}

constexpr tenon_comm kTable = {
    sizeof(tenon_comm), TENON_COMM_TREE_ORDER, domain_open, domain_close, alloc, release_memory,
    group_open,         group_close,           prepare,     start,        test,  wait_host,
    wait_stream,        abort_domain,          release_plan};

// UCX's log has no argument of ours, so the host must be found without one.
std::atomic<const tenon_host*>& log_host() {
  static std::atomic<const tenon_host*> host{nullptr};
  return host;
}

// UCX would print; errors also come back as values, so they are warnings here.
ucs_log_func_rc_t forward_log(const char* file, unsigned line, const char*, ucs_log_level_t level,
                              const ucs_log_component_config_t*, const char* format, va_list arguments) {
  const tenon_host* host = log_host().load();
  const uint32_t ours = level <= UCS_LOG_LEVEL_ERROR  ? TENON_LOG_WARN
                        : level == UCS_LOG_LEVEL_WARN ? TENON_LOG_INFO
                                                      : TENON_LOG_DEBUG;
  if (host == nullptr || host->log_enabled(host, ours) == 0) return UCS_LOG_FUNC_RC_STOP;
  char text[512];
  std::vsnprintf(text, sizeof text, format, arguments);
  host->log(host, ours, file, line, (std::string("ucx: ") + text).c_str());
  return UCS_LOG_FUNC_RC_STOP;
}

tenon_code init(const tenon_host* host, tenon_error*) {
  log_host() = host;
  ucs_log_push_handler(forward_log);
  return TENON_OK;
}

void deinit() {
  ucs_log_pop_handler();
  log_host() = nullptr;
}

const void* get_interface(const char* id) { return std::strcmp(id, TENON_COMM) == 0 ? &kTable : nullptr; }

constexpr tenon_option_decl kTls = {
    sizeof(tenon_option_decl),
    TENON_STRING,
    "tls",
    "UCX transports as in UCX_TLS: 'tcp', 'posix,self,tcp', '^sysv'; empty: all but CMA",
    "",
    nullptr,
    1,
    0};
constexpr const tenon_option_decl* kOptions[] = {&kTls};

}  // namespace

extern "C" TENON_EXPORT const tenon_plugin tenon_plugin_v0 = {sizeof(tenon_plugin),
                                                              TENON_ABI_MAJOR,
                                                              TENON_ABI_MINOR,
                                                              TENON_ABI_MINOR,
                                                              "comm/ucx",
                                                              "0.1.0",
                                                              "Processes on one host or many, over UCX",
                                                              kOptions,
                                                              1,
                                                              init,
                                                              deinit,
                                                              get_interface};
