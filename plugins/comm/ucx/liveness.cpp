#include "liveness.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

namespace tenon::comm_ucx {

namespace {
constexpr auto kGrace = std::chrono::milliseconds(20);
}

ProcessIdentity ProcessIdentity::own() {
  ProcessIdentity out;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  file.read(out.boot_id, 36);
  struct stat status {};
  if (stat("/proc/self/ns/pid", &status) == 0) out.pid_namespace = status.st_ino;
  out.pid = getpid();
  return out;
}

bool ProcessIdentity::on_host_of(const ProcessIdentity& other) const {
  return boot_id[0] != '\0' && std::memcmp(boot_id, other.boot_id, sizeof boot_id) == 0;
}

Liveness::~Liveness() {
  for (const Watched& w : watched_) close(w.fd);
}

void Liveness::watch(int rank, const ProcessIdentity& process) {
  const ProcessIdentity own = ProcessIdentity::own();
  if (!own.on_host_of(process) || own.pid_namespace == 0 || own.pid_namespace != process.pid_namespace)
    return;
  const long fd = syscall(SYS_pidfd_open, static_cast<pid_t>(process.pid), 0);
  if (fd < 0) return;
  watched_.push_back({rank, static_cast<int>(fd), false, false, {}});
  entries_.push_back({static_cast<int>(fd), POLLIN, 0});
}

void Liveness::see(const pollfd* polled, size_t count) {
  for (size_t i = 0; i < watched_.size() && i < count; ++i) {
    if (watched_[i].ended || polled[i].fd != watched_[i].fd || (polled[i].revents & POLLIN) == 0) continue;
    watched_[i].ended = true;
    watched_[i].since = Clock::now();
    entries_[i].fd = -1;
    ++num_ended_;
  }
}

void Liveness::look() {
  if (entries_.empty() || poll(entries_.data(), entries_.size(), 0) <= 0) return;
  see(entries_.data(), entries_.size());
}

bool Liveness::has_ended(int rank) const {
  for (const Watched& w : watched_) {
    if (w.rank == rank) return w.ended;
  }
  return false;
}

std::vector<int> Liveness::take_ended() {
  std::vector<int> ranks;
  if (!pending()) return ranks;
  for (Watched& w : watched_) {
    if (!w.ended || w.taken || Clock::now() - w.since < kGrace) continue;
    w.taken = true;
    ++num_taken_;
    ranks.push_back(w.rank);
  }
  return ranks;
}

}  // namespace tenon::comm_ucx
