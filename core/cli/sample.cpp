#include "cli/sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"

namespace tenon::cli {
namespace {

int32_t draw(const std::vector<double>& logits, const SampleOptions& options, uint64_t index) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  if (options.temperature <= 0) return order[0];
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < order.size())
    order.resize(static_cast<size_t>(options.top_k));
  std::vector<double> cumulative;
  double sum = 0;
  const double top = logits[static_cast<size_t>(order[0])];
  for (int32_t token : order)
    cumulative.push_back(sum += std::exp((logits[static_cast<size_t>(token)] - top) / options.temperature));
  const double u = uniform_at(options.seed, index) * sum;
  const auto it = std::upper_bound(cumulative.begin(), cumulative.end(), u);
  return order[std::min(static_cast<size_t>(it - cumulative.begin()), order.size() - 1)];
}

}  // namespace

Result<std::string> sample(Session& session, const SampleOptions& options) {
  TENON_TRY(std::vector<int32_t> tokens, session.feeder().encode(options.prompt));
  if (tokens.empty())
    return Error{"R022", "the prompt has no tokens", "--prompt", "give at least one character",
                 TENON_E_ARGUMENT};
  const auto context = static_cast<size_t>(session.recipe().context);
  for (int64_t i = 0; i < options.length; ++i) {
    const size_t first = tokens.size() > context ? tokens.size() - context : 0;
    TENON_TRY(const auto logits, session.logits({tokens.begin() + static_cast<long>(first), tokens.end()}));
    tokens.push_back(draw(logits, options, static_cast<uint64_t>(i)));
  }
  return session.feeder().decode(tokens);
}

}  // namespace tenon::cli
