// Collectives of a comm plugin beside bare loops over shared memory, call by call in turn.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bench/bare.h"
#include "bench/bench.h"
#include "bench/probes.h"

namespace tenon::bench {
namespace {

struct Collective {
  TransferKind kind;
  bool in_place;
};
constexpr std::array<Collective, 5> kCollectives{{
    {TransferKind::all_reduce, true},
    {TransferKind::reduce_scatter, false},
    {TransferKind::all_gather, false},
    {TransferKind::broadcast, true},
    {TransferKind::all_to_all, false},
}};

// One collective at one size: what it reads, and what must come out where each rank wrote its own number.
struct Shape {
  Collective collective;
  int64_t world = 1, count = 0;  // elements of the larger side, divisible by the world

  int64_t part() const { return count / world; }
  int64_t read() const { return collective.kind == TransferKind::all_gather ? part() : count; }
  int64_t written() const { return collective.kind == TransferKind::reduce_scatter ? part() : count; }
  // Element `at` of the result, when rank r wrote first + r.
  float expected(float first, int64_t at) const {
    const auto n = static_cast<float>(world);
    const int64_t from = at / part();
    switch (collective.kind) {
      case TransferKind::all_reduce:
      case TransferKind::reduce_scatter: return n * first + n * (n - 1) / 2;
      case TransferKind::broadcast: return first;
      default: return first + static_cast<float>(from);
    }
  }
};

// The plugin's side: memory that peers reach, and one plan at a time.
class Plugin {
 public:
  static Result<std::unique_ptr<Plugin>> open(RankDevice& device, uint64_t bytes) {
    std::unique_ptr<Plugin> out(new Plugin(device));
    const auto& comm = device.plugins().comm;
    const auto free = [&device](void* p) { device.plugins().comm.table->free(device.domain(), p); };
    TENON_TRY(out->group_, device.group({0}));
    for (Handle<void>* memory : {&out->source_, &out->destination_}) {
      TENON_TRY(*memory, open_handle<void>(comm.id, free, [&](void** o, auto* e) {
        return comm.table->alloc(device.domain(), bytes, o, e);
      }));
    }
    return out;
  }

  Status prepare(const Shape& shape) {
    plan_.reset();
    const auto n = static_cast<size_t>(shape.world);
    const bool both = shape.collective.kind == TransferKind::all_to_all;
    const std::vector<uint64_t> counts(both ? 2 * n : n, static_cast<uint64_t>(shape.part()));
    const bool counted = both || shape.collective.kind == TransferKind::reduce_scatter ||
                         shape.collective.kind == TransferKind::all_gather;
    tenon_comm_op op{};
    op.struct_size = sizeof op;
    op.kind = transfer_row(shape.collective.kind).comm;
    op.reduce = TENON_SUM;
    op.dtype = TENON_F32;
    op.src = source();
    op.dst = shape.collective.in_place ? source() : destination();
    op.count = static_cast<uint64_t>(shape.read());
    op.counts = counted ? counts.data() : nullptr;
    const tenon_comm_op* const ops[] = {&op};
    const auto& comm = device_.plugins().comm;
    TENON_TRY(plan_, open_handle<tenon_comm_plan>(comm.id, comm.table->release, [&](auto** o, auto* e) {
                return comm.table->prepare(group_, ops, 1, o, e);
              }));
    return {};
  }

  Status run() {
    const auto& comm = device_.plugins().comm;
    const tenon_stream stream{{kDLCPU, 0}, nullptr};
    tenon_error error = empty_abi_error();
    tenon_code code = comm.table->start(plan_.get(), &stream, &error);
    if (code >= 0) code = comm.table->wait_host(plan_.get(), -1, &error);
    return code < 0 ? Status(from_abi(code, error, comm.id)) : Status();
  }
  float* source() const { return static_cast<float*>(source_.get()); }
  float* destination() const { return static_cast<float*>(destination_.get()); }

 private:
  explicit Plugin(RankDevice& device) : device_(device) {}
  RankDevice& device_;
  tenon_comm_group* group_ = nullptr;
  Handle<void> source_, destination_;
  Handle<tenon_comm_plan> plan_;
};

// As many calls as take about `seconds` for both contestants.
int calls_for(uint64_t bytes, int rounds) {
  const double per_call = 2e-5 + static_cast<double>(bytes) / 5e8;  // writing included
  constexpr double kSeconds = 0.02;                                 // a round
  return std::clamp(static_cast<int>(kSeconds * rounds / per_call), rounds, 100 * rounds);
}

class Contest {
 public:
  Contest(SharedWorld& world, Plugin& plugin, const Shape& shape)
      : world_(world), plugin_(plugin), shape_(shape) {}

  Result<Json> run(int calls) {
    TENON_CHECK(plugin_.prepare(shape_));
    std::vector<double> mine, bare;
    for (int call = -3; call < calls; ++call) {  // the first ones warm up
      const auto first = static_cast<float>(call + 10);
      TENON_TRY(const double a, plugin_call(first));
      TENON_TRY(const double b, bare_call(first));
      if (call < 0) continue;
      mine.push_back(a);
      bare.push_back(b);
    }
    const double seconds = median(mine), floor = median(bare);
    const auto bytes = static_cast<double>(shape_.count) * sizeof(float);
    return Json{{"op", name_of(shape_.collective.kind)},
                {"bytes", static_cast<uint64_t>(bytes)},
                {"calls", calls},
                {"seconds", seconds},
                {"bytes_per_s", bytes / seconds},
                {"bare_seconds", floor},
                {"of_bare", floor / seconds}};
  }

 private:
  // The slowest rank's time. Every rank writes its source anew, as a backward pass would: else each slice
  // would be in the cache of the core that reduced it the last time.
  template <class Call>
  Result<double> timed(float* source, const float* result, float first, Call&& call) {
    std::fill_n(source, shape_.read(), first + static_cast<float>(world_.id().rank));
    TENON_CHECK(world_.barrier());
    const double start = seconds_now();
    TENON_CHECK(call());
    TENON_TRY(const double slowest, world_.max(seconds_now() - start));
    const int64_t last = shape_.written() - 1;
    for (const int64_t at : {int64_t{0}, last / 3, last / 2, last}) {
      if (result[at] != shape_.expected(first, at)) return wrong(at);
    }
    return slowest;
  }
  Result<double> plugin_call(float first) {
    const float* result = shape_.collective.in_place ? plugin_.source() : plugin_.destination();
    return timed(plugin_.source(), result, first, [&] { return plugin_.run(); });
  }
  Result<double> bare_call(float first) {
    const int64_t me = world_.id().rank;
    float* result = shape_.collective.in_place ? world_.source(me) : world_.destination(me);
    return timed(world_.source(me), result, first,
                 [&] { return world_.collective(shape_.collective.kind, shape_.count); });
  }
  Error wrong(int64_t at) const {
    return Error{"A013",
                 fmt::format("{} of {} elements: element {} is wrong", name_of(shape_.collective.kind),
                             shape_.count, at),
                 fmt::format("rank {}", world_.id().rank), "", TENON_E_INTERNAL};
  }

  SharedWorld& world_;
  Plugin& plugin_;
  Shape shape_;
};

bool wanted(const Settings& settings, const char* name) {
  return settings.collectives.empty() || std::ranges::count(settings.collectives, name) > 0;
}

}  // namespace

std::vector<std::string> collective_names() {
  std::vector<std::string> out;
  for (const Collective& collective : kCollectives) out.emplace_back(name_of(collective.kind));
  return out;
}

Result<Json> measure_comm(const PluginSet& plugins, RankId id, run::Rendezvous& rendezvous,
                          const Settings& settings) {
  if (std::ranges::min(settings.sizes) < static_cast<uint64_t>(id.world) * sizeof(float)) {
    return Error{"R005",
                 fmt::format("{} bytes are less than an element for each of {} ranks",
                             std::ranges::min(settings.sizes), id.world),
                 "--sizes", "larger messages", TENON_E_ARGUMENT};
  }
  const Mesh mesh{{{"rank", id.world}}};
  const run::RendezvousTable table(rendezvous);
  constexpr int64_t kPatience = 60'000'000'000;
  TENON_TRY(const auto device, RankDevice::open(plugins, id, mesh, table.table(), kPatience));
  const uint64_t most = *std::ranges::max_element(settings.sizes);
  TENON_TRY(const auto world, SharedWorld::open(id, rendezvous, most));
  TENON_TRY(const auto plugin, Plugin::open(*device, aligned(most)));
  Json rows = Json::array();
  for (const Collective& collective : kCollectives) {
    if (!wanted(settings, name_of(collective.kind))) continue;
    for (const uint64_t bytes : settings.sizes) {
      const auto part = static_cast<int64_t>(bytes / sizeof(float)) / id.world;
      const Shape shape{collective, id.world, part * id.world};
      TENON_TRY(Json row, Contest(*world, *plugin, shape).run(calls_for(bytes, settings.rounds)));
      rows.push_back(std::move(row));
    }
  }
  return Json{{"plugin", plugins.comm.id}, {"ranks", id.world}, {"rows", std::move(rows)}};
}

}  // namespace tenon::bench
