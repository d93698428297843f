// Runs compared: bit by bit, or within the gates, |d| <= tol * max(|g|, 1e-3 |all g|) for each gradient.
#pragma once

#include "virtual_run.hpp"

namespace tenon::test {

// 1,187 bytes whose last window is short, so that ranks have unequal token counts.
std::string corpus_file();

// A run that may not fail.
RunRecord must_run(const Json& recipe, const RunOptions& options);

// Losses, norms, gradients, and what is there in the end.
void expect_same_bits(const RunRecord& one, const RunRecord& many);

double norm_of(const std::vector<double>& v);

// The worst ratio of a gradient's difference to what the gate allows per unit of tolerance, and its name.
std::pair<double, std::string> worst_gradient(const StepRecord& a, const StepRecord& b, Dtype dtype);

void expect_close(const RunRecord& one, const RunRecord& many, Dtype dtype, double tol);

// Parameters and optimizer state, by the same rule: a tensor against what all of its kind amount to.
void expect_close_tensors(const RunRecord& one, const RunRecord& many, double tol);

}  // namespace tenon::test
