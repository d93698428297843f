// The update of all parameters beside an add that reads and writes the same arrays, in turn.
#include <nlohmann/json.hpp>

#include "bench/bench.h"
#include "bench/one_rank.h"
#include "bench/probes.h"

namespace tenon::bench {
namespace {

// Arrays for all parameters as in a step: parameters, gradients, and one for each slot, tensor behind tensor.
template <class Real>
class Arrays {
 public:
  static Result<std::unique_ptr<Arrays>> make(RankDevice& device, const Program& program) {
    auto out = std::make_unique<Arrays>();
    for (const TensorInfo& param : program.params) out->count_ += aligned_count(param);
    const size_t slots = device.optimizer_declaration(0).slots.size();
    for (size_t i = 0; i < 2 + slots; ++i) {
      TENON_TRY(auto memory, device.memory(static_cast<uint64_t>(out->count_) * sizeof(Real)));
      out->memory_.push_back(std::move(memory));
      const double most = i == 0 ? 0.1 : 1e-3;  // an optimizer's slots may be squares: not below zero
      fill_real(out->array(i), out->count_, i < 2 ? -most : 0, most);
    }
    out->add_pieces(program, slots, device.optimizer_declaration(0).num_stats);
    return out;
  }

  Real* array(size_t i) const { return static_cast<Real*>(memory_[i].get()); }
  size_t arrays() const { return memory_.size(); }
  int64_t count() const { return count_; }
  const tenon_update* const* pieces() const { return pointers_.data(); }
  uint32_t num_pieces() const { return static_cast<uint32_t>(pointers_.size()); }
  // Gradients are only read.
  double bytes() const {
    return static_cast<double>(count_) * sizeof(Real) * (2 * static_cast<double>(arrays()) - 1);
  }

 private:
  static int64_t aligned_count(const TensorInfo& param) {
    return static_cast<int64_t>(aligned(static_cast<uint64_t>(elements(param.dims)) * sizeof(Real)) /
                                sizeof(Real));
  }
  void add_pieces(const Program& program, size_t slots, size_t num_stats) {
    int64_t at = 0;
    for (const TensorInfo& param : program.params) {
      std::vector<void*>& slot = slots_.emplace_back();
      for (size_t i = 0; i < slots; ++i) slot.push_back(array(2 + i) + at);
      tenon_update& piece = pieces_.emplace_back();
      piece.struct_size = sizeof piece;
      piece.dtype = static_cast<uint32_t>(param.operand.dtype);
      piece.count = static_cast<uint64_t>(elements(param.dims));
      piece.rows = param.dims.empty() ? 1 : static_cast<uint64_t>(param.dims[0].size);
      piece.param = array(0) + at;
      piece.grad = array(1) + at;
      at += aligned_count(param);
    }
    stats_.assign(pieces_.size() * num_stats, 1.0);
    for (size_t i = 0; i < pieces_.size(); ++i) {
      pieces_[i].slots = slots_[i].data();
      if (num_stats > 0) pieces_[i].stats = stats_.data() + i * num_stats;
      pointers_.push_back(&pieces_[i]);
    }
  }

  int64_t count_ = 0;
  std::vector<Handle<void>> memory_;  // 0: parameters, 1: gradients, then slots
  std::vector<std::vector<void*>> slots_;
  std::vector<double> stats_;
  std::vector<tenon_update> pieces_;
  std::vector<const tenon_update*> pointers_;
};

template <class Real>
Result<double> update_seconds(RankDevice& device, const Arrays<Real>& arrays, int64_t step) {
  const auto& optimizer = device.plugins().optimizer;
  const tenon_stream stream{{kDLCPU, 0}, nullptr};
  const tenon_step_scalars scalars{sizeof scalars, 0, step, 1e-4, 1.0};
  tenon_error error = empty_abi_error();
  const double start = seconds_now();
  const tenon_code code = optimizer.table->step(device.optimizer(0), &stream, arrays.pieces(),
                                                arrays.num_pieces(), &scalars, &error);
  if (code < 0) return from_abi(code, error, optimizer.id);
  return seconds_now() - start;
}

// Adds the gradients to every other array, in one pass: what an update moves, and as many streams. Bytes per
// second.
template <class Real>
double add_rate(ThreadPool& pool, const Arrays<Real>& arrays) {
  struct Job {
    const Arrays<Real>& arrays;
    int64_t parts;
  } job{arrays, pool.num_threads()};
  const double start = seconds_now();
  pool.run(
      job.parts,
      [](void* arg, int64_t part) {
        typedef Real Vector __attribute__((vector_size(64), may_alias));  // arrays are padded to whole ones
        constexpr int64_t kLanes = sizeof(Vector) / sizeof(Real);
        const Job& j = *static_cast<Job*>(arg);
        const auto at = [&j](size_t k, int64_t i) {
          return reinterpret_cast<Vector*>(j.arrays.array(k)) + i;
        };
        const int64_t vectors = j.arrays.count() / kLanes, end = vectors * (part + 1) / j.parts;
        for (int64_t i = vectors * part / j.parts; i < end; ++i) {
          const Vector gradient = *at(1, i);
          *at(0, i) += gradient;
          for (size_t k = 2; k < j.arrays.arrays(); ++k) *at(k, i) += gradient;
        }
      },
      &job);
  return arrays.bytes() / (seconds_now() - start);
}

template <class Real>
Result<Json> measure(OneRank& rank, const Settings& settings) {
  TENON_TRY(const auto arrays, Arrays<Real>::make(rank.device(), rank.program()));
  std::vector<double> seconds, rates;
  for (int round = -1; round < settings.rounds; ++round) {  // the first one touches memory
    TENON_TRY(const double taken, update_seconds(rank.device(), *arrays, round + 2));
    const double rate = add_rate(rank.pool(), *arrays);
    if (round < 0) continue;
    seconds.push_back(taken);
    rates.push_back(rate);
  }
  const double time = median(seconds), rate = std::ranges::max(rates), floor = arrays->bytes() / rate;
  return Json{{"plugin", rank.device().plugins().optimizer.id},
              {"parameters", arrays->count()},
              {"seconds", time},
              {"bytes_per_s", arrays->bytes() / time},
              {"add_bytes_per_s", rate},
              {"floor_seconds", floor},
              {"of_floor", floor / time}};
}

}  // namespace

Result<Json> measure_optimizer(const Recipe& recipe, const PluginSet& plugins, const Settings& settings) {
  TENON_TRY(const auto rank, OneRank::open(recipe, plugins, settings.threads));
  const ThreadPool::Use use(rank->pool());
  TENON_TRY(Json row, recipe.precision == Dtype::f64 ? measure<double>(*rank, settings)
                                                     : measure<float>(*rank, settings));
  return Json{{"recipe", recipe.name},
              {"threads", settings.threads},
              {"rounds", settings.rounds},
              {"rows", Json::array({std::move(row)})}};
}

}  // namespace tenon::bench
