// comm/ucx: collectives among processes and hosts over UCX's tagged messages.
#include <ucs/debug/log_def.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>

#include "domain.h"
#include "tenon/comm.h"
#include "tenon_sdk/comm/table.hpp"

namespace {

using namespace tenon::comm_ucx;
using tenon::sdk::Failure;

Domain* open_domain(const tenon_comm_config& config) {
  tenon::comm::check_config(config, "comm/ucx");
  if (config.world > 65535) throw Failure(TENON_E_UNSUPPORTED, "comm/ucx joins at most 65535 ranks");
  return new Domain(config, tenon::sdk::Options(config).string("tls"));
}

constexpr tenon_comm kTable =
    tenon::comm::Table<Domain, Group, Plan, open_domain>::make(TENON_COMM_TREE_ORDER);

// UCX's log has no argument of ours, so the host must be found without one.
std::atomic<const tenon_host*>& log_host() {
  static std::atomic<const tenon_host*> host{nullptr};
  return host;
}

// UCX would print. Errors also come back as values, from which the domain makes its own that name the rank.
ucs_log_func_rc_t forward_log(const char* file, unsigned line, const char*, ucs_log_level_t level,
                              const ucs_log_component_config_t*, const char* format, va_list arguments) {
  const tenon_host* host = log_host().load();
  const uint32_t ours = level < UCS_LOG_LEVEL_ERROR   ? TENON_LOG_WARN
                        : level <= UCS_LOG_LEVEL_WARN ? TENON_LOG_INFO
                                                      : TENON_LOG_DEBUG;
  if (host == nullptr || !TENON_FN(host, tenon_host, log) || host->log_enabled(host, ours) == 0)
    return UCS_LOG_FUNC_RC_STOP;
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

constexpr tenon_option_decl kTls = tenon::sdk::string_option(
    "tls", "UCX transports as in UCX_TLS: 'tcp', 'posix,self,tcp', '^sysv'; empty: all but CMA", "");
constexpr const tenon_option_decl* kOptions[] = {&kTls};

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = tenon::sdk::plugin_with<TENON_COMM, kTable, init, deinit>(
    "comm/ucx", "0.1.0", "Processes on one host or many, over UCX", kOptions);
