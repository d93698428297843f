// judge_mutants [recipe]... [--sample N] [--each N] [--seed S] [--jobs N] [--show N] [--list]
// Judges mutants of the recipes' programs: N of each kind of change, or a sample of N of these in all. Exit 1
// where one survives.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <set>

#include "base/hash.h"
#include "base/rng.h"
#include "recipes.h"
#include "report.h"
#include "workers.h"

namespace tenon::mutants {
namespace {

constexpr size_t kEach = 50, kEachOfSample = 5;  // of each kind of change, part and recipe

struct Options {
  std::set<std::string> recipes;
  size_t sample = 0, each = 0, show = 5;
  uint64_t seed = 1;
  int jobs = 2;
  bool list = false;
};

Options parse(const std::vector<std::string>& words) {
  Options out;
  for (size_t i = 0; i < words.size(); ++i) {
    const auto value = [&] {
      if (i + 1 == words.size()) throw std::runtime_error(words[i] + " needs a value");
      return words[++i];
    };
    if (words[i] == "--sample")
      out.sample = std::stoul(value());
    else if (words[i] == "--each")
      out.each = std::stoul(value());
    else if (words[i] == "--show")
      out.show = std::stoul(value());
    else if (words[i] == "--seed")
      out.seed = std::stoull(value());
    else if (words[i] == "--jobs")
      out.jobs = std::stoi(value());
    else if (words[i] == "--list")
      out.list = true;
    else if (std::ranges::count(recipes(), words[i], &NamedRecipe::name) > 0)
      out.recipes.insert(words[i]);
    else
      throw std::runtime_error("no recipe '" + words[i] + "'; --list names them");
  }
  if (out.each == 0) out.each = out.sample > 0 ? kEachOfSample : kEach;
  return out;
}

std::vector<Mutant> some_of(std::vector<Mutant> all, size_t most, uint64_t key) {
  if (all.size() <= most) return all;
  const Permutation order(all.size(), key);
  std::vector<Mutant> out;
  for (size_t i = 0; i < most; ++i) out.push_back(all[order(i)]);
  return out;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int run(const Options& options) {
  std::vector<NamedRecipe> chosen;
  for (const NamedRecipe& recipe : recipes()) {
    if (options.recipes.empty() || options.recipes.count(recipe.name) > 0) chosen.push_back(recipe);
  }
  if (options.list) {
    for (const NamedRecipe& recipe : chosen) fmt::print("{}\n", recipe.name);
    return 0;
  }
  Report report;
  for (const NamedRecipe& recipe : chosen) {
    const auto start = std::chrono::steady_clock::now();
    Subject subject(recipe.name, recipe.document);
    std::vector<Mutant> mutants = mutants_of(subject, options.each, options.seed);
    if (options.sample > 0)
      mutants = some_of(std::move(mutants), (options.sample + chosen.size() - 1) / chosen.size(),
                        key_from(options.seed, "sample/" + recipe.name));
    const auto judgements = judge_all(subject, mutants, options.jobs, options.seed);
    size_t surviving = 0;
    for (size_t i = 0; i < mutants.size(); ++i) {
      report.add(recipe.name, mutants[i], judgements[i]);
      surviving += survives(judgements[i].verdict) ? 1 : 0;
    }
    fmt::print("{:<14} {:>6} mutants, {:>6} survive, {:.1f} s\n", recipe.name, mutants.size(), surviving,
               seconds_since(start));
    std::cout.flush();
  }
  fmt::print("\n{}\n{}\n{}", report.survivors(options.show), report.crashes(), report.table());
  return report.surviving() ? 1 : 0;
}

}  // namespace
}  // namespace tenon::mutants

int main(int argc, char** argv) {
  try {
    return tenon::mutants::run(tenon::mutants::parse({argv + 1, argv + argc}));
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
