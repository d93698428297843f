#include "endpoint.h"

#include <poll.h>

#include "exchange.h"

namespace tenon::comm_ucx {

using sdk::Failure;

namespace {

void check(ucs_status_t status, const std::string& what) {
  if (status != UCS_OK) throw ucx_failure(TENON_E_IO, what, status);
}

struct ConfigRelease {
  void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};
using Config = std::unique_ptr<ucp_config_t, ConfigRelease>;

Config make_config(const std::string& tls) {
  ucp_config_t* raw = nullptr;
  check(ucp_config_read(nullptr, nullptr, &raw), "reading the UCX configuration");
  Config config(raw);
  struct Setting {
    const char* name;
    const char* value;
  };
  const Setting settings[] = {
      // Copying through shared memory beats CMA here, and CMA fails where ptrace is forbidden.
      {"TLS", tls.empty() ? "^cma" : tls.c_str()},
      // Without it UCX takes shared memory for unable to tell that a peer has died, and falls back to TCP.
      {"MM_ERROR_HANDLING", "y"},
      // Room for 4 MiB at the receiver before a sender must wait for its turn on a core.
      {"MM_FIFO_SIZE", "512"},
      {"KEEPALIVE_INTERVAL", "1s"},
      // A vanished host, on an idle connection, is noticed after 5 + 3 * 2 s; deadlines cover the rest.
      {"KEEPIDLE", "5s"},
      {"KEEPINTVL", "2s"},
      {"KEEPCNT", "3"},
  };
  for (const Setting& s : settings) {
    check(ucp_config_modify(config.get(), s.name, s.value),
          std::string("UCX setting ") + s.name + "=" + s.value);
  }
  return config;
}

}  // namespace

Failure ucx_failure(tenon_code code, const std::string& what, ucs_status_t status) {
  return Failure(code, what + ": " + ucs_status_string(status), "ucx", status);
}

Worker::Worker(const std::string& tls) {
  const Config config = make_config(tls);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  params.name = "tenon";
  const std::string transports = tls.empty() ? "the default transports" : "transports '" + tls + "'";
  check(ucp_init(&params, config.get(), &context_), "opening UCX with " + transports);
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucs_status_t status = ucp_worker_create(context_, &worker, &worker_);
  if (status == UCS_OK) status = ucp_worker_get_efd(worker_, &event_fd_);
  if (status == UCS_OK) return;
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  ucp_cleanup(context_);
  throw ucx_failure(TENON_E_IO, "opening a UCX worker with " + transports, status);
}

Worker::~Worker() {
  ucp_worker_destroy(worker_);
  ucp_cleanup(context_);
}

std::string Worker::address() const {
  ucp_address_t* address = nullptr;
  size_t size = 0;
  check(ucp_worker_get_address(worker_, &address, &size), "asking for the worker's address");
  std::string bytes(reinterpret_cast<const char*>(address), size);
  ucp_worker_release_address(worker_, address);
  return bytes;
}

Peer::Peer(const Worker& worker, int rank, const std::string& address) : worker_(worker), rank_(rank) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {on_error, this};
  const ucs_status_t status = ucp_ep_create(worker.get(), &params, &endpoint_);
  if (status != UCS_OK) {
    throw ucx_failure(TENON_E_PEER,
                      "connecting to rank " + std::to_string(rank) + " (do both have a transport in common?)",
                      status);
  }
}

Peer::~Peer() { cut(1.0); }

ucs_status_ptr_t Peer::flush() const {
  const ucp_request_param_t params{};
  return ucp_ep_flush_nbx(endpoint_, &params);
}

void Peer::close(double seconds) { close_with(lost_ ? UCP_EP_CLOSE_FLAG_FORCE : 0, seconds); }
void Peer::cut(double seconds) { close_with(UCP_EP_CLOSE_FLAG_FORCE, seconds); }

void Peer::close_with(uint32_t flags, double seconds) {
  if (endpoint_ == nullptr) return;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = flags;
  ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint_, &params);
  endpoint_ = nullptr;
  if (!UCS_PTR_IS_PTR(request)) return;
  const Deadline deadline = deadline_in(static_cast<int64_t>(seconds * 1e9));
  while (ucp_request_check_status(request) == UCS_INPROGRESS && !passed(deadline)) {
    if (worker_.progress() == 0) poll(nullptr, 0, 1);
  }
  ucp_request_free(request);
}

// Called from inside progress(): only remembers.
void Peer::on_error(void* self, ucp_ep_h, ucs_status_t status) {
  auto* peer = static_cast<Peer*>(self);
  peer->set_lost("rank " + std::to_string(peer->rank_) + " is lost: " + ucs_status_string(status));
}

}  // namespace tenon::comm_ucx
