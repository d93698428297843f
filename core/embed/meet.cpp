// How the ranks of an embedded run find each other, agree on its id, and part.
#include <chrono>

#include "embed/run.h"
#include "run/rendezvous/auth.h"

namespace tenon::embed {
namespace {

Error bad_option(const std::string& what, const std::string& fix) {
  return Error{"A010", "tenon_run_options: " + what, "", fix, TENON_E_ARGUMENT};
}

Meeting meet_in_process(int64_t world) {
  Meeting out;
  out.world = world;
  auto memory = std::make_unique<run::MemoryRendezvous>();
  out.memory = memory.get();
  out.rendezvous = std::move(memory);
  return out;
}

Result<Meeting> meet_by_network(const tenon_run_options& options, int64_t timeout_ns) {
  Meeting out;
  out.first_rank = options.rank;
  out.world = options.world;
  if (options.world == 1) return out;
  const std::string host = options.host == nullptr ? "127.0.0.1" : options.host;
  const std::string secret(reinterpret_cast<const char*>(options.secret), run::kSecretBytes);
  const std::string job = options.job == nullptr ? "tenon" : options.job;
  if (options.rank == 0 && (options.flags & TENON_RUN_CONNECT) == 0) {
    run::ServerOptions server;
    server.address = host;
    server.port = static_cast<uint16_t>(options.port);
    server.secret = secret;
    server.job = job;
    server.world = static_cast<uint32_t>(options.world);
    TENON_TRY(out.server, run::TcpServer::start(server));
  }
  run::ClientOptions client;
  client.host = host;
  client.port = static_cast<uint16_t>(options.port);
  client.secret = secret;
  client.job = job;
  client.rank = static_cast<uint32_t>(options.rank);
  client.connect_timeout_ns = timeout_ns;
  TENON_TRY(auto connection, run::TcpClient::connect(client));
  out.client = connection.get();
  out.rendezvous = std::move(connection);
  return out;
}

constexpr const char* kRunId = "embed/run_id";
std::string goodbye_key(int64_t rank) { return "embed/goodbye/" + std::to_string(rank); }

}  // namespace

Status check_ranks(const tenon_run_options& options) {
  if (const uint32_t unknown = options.flags & ~uint32_t{TENON_RUN_NO_TRAINING | TENON_RUN_CONNECT};
      unknown != 0) {
    return bad_option("flags of which " + std::to_string(unknown) + " are unknown",
                      "clear them, or use the libtenon.so that this program was built for");
  }
  if (options.world < 0 || options.virtual_ranks < 0) return bad_option("a negative number of ranks", "");
  if (options.world == 0) {
    if (options.rank == 0) return {};
    return bad_option("rank " + std::to_string(options.rank) + " without a world",
                      "set world to the number of processes");
  }
  if (options.virtual_ranks != 0) return bad_option("virtual_ranks and world together", "set one of them");
  if (options.rank < 0 || options.rank >= options.world) {
    return bad_option("rank " + std::to_string(options.rank) + " of " + std::to_string(options.world),
                      "ranks count from 0");
  }
  return {};
}

Status check_meeting(const tenon_run_options& options) {
  if (options.world <= 1) return {};
  if (options.secret == nullptr)
    return bad_option("'secret' is NULL", "give all ranks the same 32 random bytes");
  if (options.port == 0 || options.port > 65535)
    return bad_option("port " + std::to_string(options.port), "use 1 to 65535");
  return {};
}

int64_t Run::ranks_for(const tenon_run_options& options) const {
  if (options.world > 0) return options.world;
  if (options.virtual_ranks > 0) return options.virtual_ranks;
  return std::max<int64_t>(recipe_.mesh.world(), 1);
}

Status Run::meet(const tenon_run_options& options) {
  if (options.world == 0) {
    meeting_ = meet_in_process(ranks_for(options));
  } else {
    TENON_TRY(meeting_, meet_by_network(options, common_.timeout_ns));
  }
  return {};
}

// Ranks that were aborted do not work any more: others take their place, where nobody else needs to know.
// What they hold is nothing to go on from.
Status Run::reopen() {
  close_ranks();
  if (meeting_.memory != nullptr) meeting_ = meet_in_process(meeting_.world);
  TENON_CHECK(open_sessions());
  torn_ = std::exchange(broken_, std::nullopt);
  const std::lock_guard lock(abort_.mutex);
  abort_.told = false;
  return {};
}

// One for all ranks: it names the run in checkpoints.
Status Run::choose_run_id() {
  constexpr size_t kBytes = 8;
  if (meeting_.first_rank == 0) {
    TENON_TRY(const std::string bytes, run::random_bytes(kBytes));
    run_id_ = run::to_hex(bytes);
  }
  if (meeting_.rendezvous == nullptr || meeting_.memory != nullptr) return {};
  if (meeting_.first_rank == 0) return meeting_.rendezvous->set(kRunId, run_id_);
  TENON_TRY(run_id_, meeting_.rendezvous->get(kRunId, common_.timeout_ns));
  return {};
}

// Whoever serves stays until the others have read what they wait for.
void Run::part() noexcept try {
  if (meeting_.rendezvous == nullptr || meeting_.memory != nullptr || broken_) return;
  if (meeting_.server == nullptr) {
    (void)meeting_.rendezvous->set(goodbye_key(meeting_.first_rank), "");
    return;
  }
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::nanoseconds kPatience = std::chrono::seconds(10);
  const auto deadline = Clock::now() + std::min(kPatience, std::chrono::nanoseconds(common_.timeout_ns));
  for (int64_t rank = 1; rank < meeting_.world; ++rank) {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()).count();
    if (!meeting_.rendezvous->get(goodbye_key(rank), std::max<int64_t>(left, 0)).ok()) return;
  }
} catch (...) {  // nobody to tell
}

}  // namespace tenon::embed
