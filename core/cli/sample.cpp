#include "cli/sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"

namespace tenon::cli {
namespace {

Result<std::vector<int32_t>> encode(Feeder& feeder, const std::string& text) {
  if (feeder.table().encode == nullptr || feeder.table().decode == nullptr) {
    return Error{"D006", "the data plugin does not turn text into tokens", "/data/plugin", "",
                 TENON_E_UNSUPPORTED};
  }
  std::vector<int32_t> tokens(text.size() + 16);
  uint64_t count = tokens.size();
  tenon_error error = empty_abi_error();
  const tenon_code code =
      feeder.table().encode(feeder.dataset(), text.data(), text.size(), tokens.data(), &count, &error);
  if (code < 0) return from_abi(code, error, "encode");
  tokens.resize(count);
  return tokens;
}

Result<std::string> decode(Feeder& feeder, const std::vector<int32_t>& tokens) {
  std::string text(tokens.size() * 16 + 16, '\0');
  uint64_t count = text.size();
  tenon_error error = empty_abi_error();
  const tenon_code code =
      feeder.table().decode(feeder.dataset(), tokens.data(), tokens.size(), text.data(), &count, &error);
  if (code < 0) return from_abi(code, error, "decode");
  text.resize(count);
  return text;
}

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
  TENON_TRY(std::vector<int32_t> tokens, encode(session.feeder(), options.prompt));
  if (tokens.empty())
    return Error{"R022", "the prompt has no tokens", "--prompt", "give at least one character",
                 TENON_E_ARGUMENT};
  const auto context = static_cast<size_t>(session.recipe().context);
  for (int64_t i = 0; i < options.length; ++i) {
    const size_t first = tokens.size() > context ? tokens.size() - context : 0;
    TENON_TRY(const auto logits, session.logits({tokens.begin() + static_cast<long>(first), tokens.end()}));
    tokens.push_back(draw(logits, options, static_cast<uint64_t>(i)));
  }
  return decode(session.feeder(), tokens);
}

}  // namespace tenon::cli
