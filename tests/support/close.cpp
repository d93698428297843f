#include "close.hpp"

#include <unistd.h>

#include <cmath>
#include <fstream>

namespace tenon::test {

std::string corpus_file() {
  static const std::string path = [] {
    const std::string file = testing::TempDir() + "tenon_corpus_" + std::to_string(getpid()) + ".txt";
    std::ofstream out(file, std::ios::binary);
    for (int i = 0; i < 1187; ++i) out.put(static_cast<char>('a' + (i * i * 7 + i / 3) % 26));
    return file;
  }();
  return path;
}

RunRecord must_run(const Json& recipe, const RunOptions& options) {
  auto record = run_virtual(recipe, options);
  EXPECT_TRUE(record.ok()) << (record.ok() ? "" : record.error().text());
  return record.ok() ? std::move(record).value() : RunRecord{};
}

void expect_same_bits(const RunRecord& one, const RunRecord& many) {
  ASSERT_FALSE(one.steps.empty());
  ASSERT_EQ(many.steps.size(), one.steps.size());
  EXPECT_EQ(many.disagreements, std::vector<std::string>{});
  for (size_t s = 0; s < one.steps.size(); ++s) {
    const StepResult &a = one.steps[s].result, &b = many.steps[s].result;
    EXPECT_EQ(b.loss, a.loss) << "step " << s + 1;
    EXPECT_EQ(b.grad_norm, a.grad_norm) << "step " << s + 1;
    EXPECT_EQ(b.tokens, a.tokens) << "step " << s + 1;
    ASSERT_EQ(many.steps[s].gradients.size(), one.steps[s].gradients.size());
    for (const auto& [name, bytes] : one.steps[s].gradients)
      EXPECT_TRUE(many.steps[s].gradients.at(name) == bytes)
          << "gradient of " << name << " at step " << s + 1;
  }
  ASSERT_EQ(many.tensors.size(), one.tensors.size());
  for (const auto& [name, bytes] : one.tensors) EXPECT_TRUE(many.tensors.at(name) == bytes) << name;
}

double norm_of(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += x * x;
  return std::sqrt(sum);
}

std::pair<double, std::string> worst_gradient(const StepRecord& a, const StepRecord& b, Dtype dtype) {
  double all = 0;
  for (const auto& [name, bytes] : a.gradients) all += std::pow(norm_of(as_doubles(bytes, dtype)), 2);
  all = std::sqrt(all);
  std::pair<double, std::string> worst{0, ""};
  for (const auto& [name, bytes] : a.gradients) {
    const auto x = as_doubles(bytes, dtype);
    const auto it = b.gradients.find(name);
    if (it == b.gradients.end() || it->second.size() != bytes.size()) return {INFINITY, name};
    const auto y = as_doubles(it->second, dtype);
    std::vector<double> difference(x.size());
    for (size_t i = 0; i < x.size(); ++i) difference[i] = x[i] - y[i];
    const double ratio = norm_of(difference) / std::max(norm_of(x), 1e-3 * all);
    if (!(ratio <= worst.first)) worst = {ratio, name};
  }
  return worst;
}

void expect_close(const RunRecord& one, const RunRecord& many, Dtype dtype, double tol) {
  ASSERT_EQ(one.steps.size(), many.steps.size());
  for (size_t s = 0; s < one.steps.size(); ++s) {
    const StepResult &a = one.steps[s].result, &b = many.steps[s].result;
    EXPECT_EQ(a.tokens, b.tokens) << "step " << s + 1;
    EXPECT_NEAR(a.loss, b.loss, tol * a.loss) << "step " << s + 1;
    EXPECT_NEAR(a.grad_norm, b.grad_norm, tol * a.grad_norm) << "step " << s + 1;
    const auto [ratio, name] = worst_gradient(one.steps[s], many.steps[s], dtype);
    EXPECT_LE(ratio, tol) << "gradient of " << name << " at step " << s + 1;
  }
}

void expect_close_tensors(const RunRecord& one, const RunRecord& many, double tol) {
  ASSERT_EQ(one.tensors.size(), many.tensors.size());
  const auto kind_of = [](const std::string& name) {
    return name.substr(std::min(name.find('/'), name.size()));  // of "<parameter>/<plugin>.<slot>"
  };
  std::map<std::string, double> all;
  for (const auto& [name, bytes] : one.tensors)
    all[kind_of(name)] += std::pow(norm_of(as_doubles(bytes, one.dtypes.at(name))), 2);
  for (const auto& [name, bytes] : one.tensors) {
    const auto it = many.tensors.find(name);
    ASSERT_NE(it, many.tensors.end()) << name;
    ASSERT_EQ(it->second.size(), bytes.size()) << name;
    const auto x = as_doubles(bytes, one.dtypes.at(name)), y = as_doubles(it->second, many.dtypes.at(name));
    std::vector<double> difference(x.size());
    for (size_t i = 0; i < x.size(); ++i) difference[i] = x[i] - y[i];
    const double allowed = tol * std::max(norm_of(x), 1e-3 * std::sqrt(all[kind_of(name)]));
    EXPECT_LE(norm_of(difference), allowed) << name << " after the last step";
  }
}

}  // namespace tenon::test
