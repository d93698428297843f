// UCX behind RAII: one context and worker per domain, one endpoint per peer.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "tenon_sdk/plugin.hpp"

namespace tenon::comm_ucx {

sdk::Failure ucx_failure(tenon_code code, const std::string& what, ucs_status_t status);

class Worker {
 public:
  // `tls`: transports as in UCX_TLS, "" for the default.
  explicit Worker(const std::string& tls);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ucp_worker_h get() const { return worker_; }
  ucp_context_h context() const { return context_; }
  unsigned progress() const { return ucp_worker_progress(worker_); }
  // What peers need to reach this worker.
  std::string address() const;
  // Becomes readable when there is something to progress, once arm() has returned true.
  int event_fd() const { return event_fd_; }
  bool arm() const { return ucp_worker_arm(worker_) == UCS_OK; }

 private:
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
};

// A connection to one rank. Not movable: UCX keeps its address.
class Peer {
 public:
  Peer(const Worker& worker, int rank, const std::string& address);
  // Forced if still open: nothing is waited for but UCX's own cancellation, and that not longer than a
  // second.
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ucp_ep_h get() const { return endpoint_; }
  int rank() const { return rank_; }
  // For operations: it is there, and has not said goodbye.
  bool usable() const { return endpoint_ != nullptr && trouble_.empty(); }
  // For control messages: what is sent may still reach it.
  bool connected() const { return endpoint_ != nullptr && !lost_; }
  // Why it cannot be used any more: "rank 3: Connection reset by remote peer", "" while it can.
  const std::string& trouble() const { return trouble_; }
  // The peer has said goodbye; what we have sent still reaches it. The first trouble stays.
  void set_left(const std::string& trouble) {
    if (trouble_.empty()) trouble_ = trouble;
  }
  void set_lost(const std::string& trouble) {
    set_left(trouble);
    lost_ = true;
  }
  // A UCX request, or no pointer if there is nothing to wait for. Ends when what has been sent is out of this
  // process's hands; that takes the peer's help while the connection is still being made.
  ucs_status_ptr_t flush() const;
  // Flushes what has been sent, at most for `seconds`.
  void close(double seconds);
  // Unfinished requests end with an error.
  void cut(double seconds);
  // Leaves it to the end of the worker.
  void abandon() { endpoint_ = nullptr; }

 private:
  void close_with(uint32_t flags, double seconds);
  static void on_error(void* self, ucp_ep_h endpoint, ucs_status_t status);
  const Worker& worker_;
  const int rank_;
  ucp_ep_h endpoint_ = nullptr;
  std::string trouble_;
  bool lost_ = false;
};

}  // namespace tenon::comm_ucx
