// comm/ucx, and a bare loop over shared memory as the floor, in the same layout of processes.
//   comm_bench tenon|bare <world> <sizes> <seconds per size>    "<name> <world> <bytes> <seconds>" for each
//   size comm_bench latency                                          "latency <ns>": one cache line, core to
//   core
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "../../comm/comm_api.h"
#include "measure.h"
#include "run/rendezvous/auth.h"
#include "run/rendezvous/rendezvous.h"
#include "run/rendezvous/tcp_client.h"
#include "run/rendezvous/tcp_server.h"
#include "tenon_sdk/comm/futex.hpp"
#include "tenon_sdk/comm/reduce.hpp"

namespace tenon::bench {
namespace {

constexpr int kMostRanks = 16;
constexpr uint64_t kMostBytes = 64 << 20;

// A barrier that spins while ranks have cores of their own, and else sleeps at once.
class Barrier {
 public:
  void wait(int world, bool spins) {
    const uint32_t round = round_.load();
    if (arrived_.fetch_add(1) + 1 == static_cast<uint32_t>(world)) {
      arrived_.store(0);
      round_.fetch_add(1);
      if (!spins) comm::futex_wake_all(round_, comm::Sharing::kProcesses);
      return;
    }
    while (round_.load() == round) {
      if (spins) {
        __builtin_ia32_pause();
      } else {
        comm::futex_wait(round_, round, std::nullopt, comm::Sharing::kProcesses);
      }
    }
  }

 private:
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> round_{0};
};

// What the ranks share besides the data; in memory that they inherit.
struct Common {
  Barrier barrier, inner;
  alignas(64) double values[kMostRanks];
  alignas(64) std::atomic<uint16_t> port{0};
  alignas(64) std::atomic<uint64_t> ping{0};
  alignas(64) std::atomic<uint64_t> pong{0};
};

void* share(uint64_t bytes) {
  void* out = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (out == MAP_FAILED) throw std::runtime_error("mmap failed");
  return out;
}

class OnHost : public Contestant {
 public:
  OnHost(Common& common, int my_rank, int ranks) : common_(common) {
    rank = my_rank;
    world = ranks;
    spins_ = ranks <= static_cast<int>(std::thread::hardware_concurrency());
  }
  void barrier() override { common_.barrier.wait(world, spins_); }
  double max(double value) override {
    common_.values[rank] = value;
    barrier();
    const double out = *std::max_element(common_.values, common_.values + world);
    barrier();
    return out;
  }

 protected:
  Common& common_;
  bool spins_;
};

// The floor: meet, reduce my slice into everyone's buffer, meet.
class Bare : public OnHost {
 public:
  Bare(Common& common, int my_rank, int ranks, std::vector<float*> buffers)
      : OnHost(common, my_rank, ranks), buffers_(std::move(buffers)) {}
  float* buffer(uint64_t) override { return buffers_[static_cast<size_t>(rank)]; }
  void all_reduce(uint64_t bytes) override {
    const auto n = static_cast<uint64_t>(world);
    const uint64_t count = bytes / sizeof(float);
    const uint64_t slice = ((count + n - 1) / n + 15) / 16 * 16;
    const uint64_t begin = std::min(count, static_cast<uint64_t>(rank) * slice);
    const uint64_t size = std::min(count, begin + slice) - begin;
    common_.inner.wait(world, spins_);
    std::vector<void*> at;
    for (float* b : buffers_) at.push_back(b + begin);
    reduce_(at.data(), world, size, at.data(), world);
    common_.inner.wait(world, spins_);
  }

 private:
  const std::vector<float*> buffers_;
  const comm::Reducer reduce_ = comm::find_reducer(TENON_SUM, TENON_F32);
};

class Tenon : public OnHost {
 public:
  Tenon(Common& common, int my_rank, int ranks, run::Rendezvous& rendezvous)
      : OnHost(common, my_rank, ranks),
        table_(test::load_comm(TENON_PLUGIN_DIR "/libtenon-comm-ucx.so")),
        rendezvous_(rendezvous),
        domain_(table_, rendezvous_.table(), {my_rank, ranks, 60'000'000'000, ""}),
        group_(domain_, test::all_ranks(ranks)) {
    tenon_error error = test::empty_error();
    test::check(table_.alloc(domain_.get(), kMostBytes, &memory_, &error), error);
  }
  ~Tenon() override {
    plan_.reset();
    table_.free(domain_.get(), memory_);
  }
  float* buffer(uint64_t bytes) override {
    plan_ = std::make_unique<test::Plan>(
        group_, std::vector<test::OpSpec>{
                    {TENON_COMM_ALL_REDUCE, TENON_F32, memory_, memory_, bytes / sizeof(float)}});
    return static_cast<float*>(memory_);
  }
  void all_reduce(uint64_t) override { plan_->run(); }

 private:
  const tenon_comm& table_;
  const run::RendezvousTable rendezvous_;
  const test::Domain domain_;
  const test::Group group_;
  void* memory_ = nullptr;
  std::unique_ptr<test::Plan> plan_;
};

// Runs body(rank) in `world` processes forked before anything has a thread. Returns whether all went well.
bool run_ranks(int world, const std::function<void(int)>& body, const std::function<void()>& meanwhile) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < world; ++rank) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    int status = 0;
    try {
      body(rank);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
      status = 1;
    }
    std::fflush(nullptr);
    _exit(status);
  }
  meanwhile();
  bool well = true;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    well = well && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return well;
}

bool bench_bare(Common& common, int world, const std::vector<uint64_t>& sizes, double seconds) {
  std::vector<float*> buffers;
  for (int r = 0; r < world; ++r) buffers.push_back(static_cast<float*>(share(kMostBytes)));
  const auto body = [&](int rank) {
    Bare bare(common, rank, world, buffers);
    run(bare, "bare", sizes, seconds);
  };
  return run_ranks(world, body, [] {});
}

bool bench_tenon(Common& common, int world, const std::vector<uint64_t>& sizes, double seconds) {
  const std::string secret = run::make_secret().value();
  const auto body = [&](int rank) {
    while (common.port.load() == 0) usleep(1000);
    run::ClientOptions options;
    options.rank = static_cast<uint32_t>(rank);
    options.port = common.port.load();
    options.secret = secret;
    options.job = "bench";
    const auto rendezvous = run::TcpClient::connect(options);
    if (!rendezvous.ok()) throw std::runtime_error(rendezvous.error().text());
    Tenon tenon(common, rank, world, **rendezvous);
    run(tenon, "tenon", sizes, seconds);
  };
  std::unique_ptr<run::TcpServer> server;
  return run_ranks(world, body, [&] {
    run::ServerOptions options;
    options.secret = secret;
    options.job = "bench";
    options.world = static_cast<uint32_t>(world);
    server = run::TcpServer::start(options).value();
    common.port = server->port();
  });
}

// One way: the least of several short rounds, for others may run on these cores.
bool bench_latency(Common& common) {
  constexpr uint64_t turns = 2000;
  constexpr int rounds = 30;
  const auto body = [&](int rank) {
    double least = 1;
    for (uint64_t k = 0; k < rounds * turns; k += turns) {
      const double start = now();
      for (uint64_t i = k + 1; i <= k + turns; ++i) {
        if (rank == 0) common.ping.store(i);
        while ((rank == 0 ? common.pong : common.ping).load() < i) __builtin_ia32_pause();
        if (rank == 1) common.pong.store(i);
      }
      least = std::min(least, (now() - start) / (2.0 * turns));
    }
    if (rank == 0) std::printf("latency %.0f\n", least * 1e9);
  };
  return run_ranks(2, body, [] {});
}

int main_of(const std::vector<std::string>& arguments) {
  auto* common = new (share(sizeof(Common))) Common;
  if (arguments.size() == 1 && arguments[0] == "latency") return bench_latency(*common) ? 0 : 1;
  if (arguments.size() != 4) return 2;
  const int world = std::stoi(arguments[1]);
  const std::vector<uint64_t> sizes = parse_sizes(arguments[2]);
  const double seconds = std::stod(arguments[3]);
  if (arguments[0] == "bare") return bench_bare(*common, world, sizes, seconds) ? 0 : 1;
  if (arguments[0] == "tenon") return bench_tenon(*common, world, sizes, seconds) ? 0 : 1;
  return 2;
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) { return tenon::bench::main_of({argv + 1, argv + argc}); }
