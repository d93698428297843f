#include "samples.h"

#include <algorithm>

#include "base/rng.h"

namespace tenon::mutants {
namespace {

constexpr uint64_t kKey = 11;

Sample make(int64_t index) {
  Sample out;
  const auto token = [index](int64_t at) {
    return static_cast<int32_t>(uniform_at(kKey, static_cast<uint64_t>(index * (kContext + 1) + at)) *
                                kVocabulary);
  };
  for (int64_t at = 0; at < kContext; ++at) {
    const bool padding = index % 5 == 4 || (index % 3 == 1 && at >= kContext / 2);
    out.tokens.push_back(token(at));
    out.targets.push_back(padding ? -1 : token(at + 1));
  }
  return out;
}

tenon_code open(const tenon_data_config*, tenon_dataset** out, tenon_error*) {
  static char dataset = 0;  // there is but one
  *out = reinterpret_cast<tenon_dataset*>(&dataset);
  return TENON_OK;
}

void close(tenon_dataset*) {}

tenon_code describe(tenon_dataset*, tenon_data_info* info, tenon_error*) {
  static constexpr int64_t kDims[] = {kContext};
  static constexpr auto field = [](const char* name) {
    return tenon_field{sizeof(tenon_field), 0, name, {TENON_I32, 1, kDims}, kVocabulary};
  };
  static constexpr tenon_field kTokens = field("tokens"), kTargets = field("targets");
  static constexpr const tenon_field* kFields[] = {&kTokens, &kTargets};
  const tenon_data_info mine = {sizeof mine, 2, kNumSamples, kFields, {1}};
  tenon_fill(info, &mine);
  return TENON_OK;
}

tenon_code read(tenon_dataset*, const int64_t* indices, uint64_t n, void* const* outs, tenon_error*) {
  auto* tokens = static_cast<int32_t*>(outs[0]);
  auto* targets = static_cast<int32_t*>(outs[1]);
  for (uint64_t i = 0; i < n; ++i) {
    const Sample& one = sample(indices[i]);
    tokens = std::copy(one.tokens.begin(), one.tokens.end(), tokens);
    targets = std::copy(one.targets.begin(), one.targets.end(), targets);
  }
  return TENON_OK;
}

}  // namespace

const Sample& sample(int64_t index) {
  static const std::vector<Sample> all = [] {
    std::vector<Sample> out;
    for (int64_t i = 0; i < kNumSamples; ++i) out.push_back(make(i));
    return out;
  }();
  return all.at(static_cast<size_t>(index));
}

const tenon_data* sample_table() {
  static constexpr tenon_data kTable{sizeof(tenon_data), 0, open, close, describe, read, nullptr, nullptr};
  return &kTable;
}

}  // namespace tenon::mutants
