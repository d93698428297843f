// That the cases of the grid cover what they say, counted anew.
#include <gtest/gtest.h>

#include <set>

#include "cases.h"

namespace tenon::test {
namespace {

using Pairs = std::set<std::vector<int>>;  // factor and value, three times

Pairs triples_of(const std::vector<Choice>& cases) {
  Pairs out;
  for (const Choice& c : cases) {
    const int n = static_cast<int>(c.size());
    for (int a = 0; a < n; ++a) {
      for (int b = a + 1; b < n; ++b) {
        for (int d = b + 1; d < n; ++d) {
          out.insert(
              {a, c[static_cast<size_t>(a)], b, c[static_cast<size_t>(b)], d, c[static_cast<size_t>(d)]});
        }
      }
    }
  }
  return out;
}

TEST(CoveringArray, of_small_factors_is_whole_and_small) {
  const auto array = cover_triples(
      {2, 2, 2, 2, 2}, [](const Choice&) { return true; }, 1);
  EXPECT_EQ(triples_of(array.cases).size(), 10u * 8u);
  EXPECT_LE(array.cases.size(), 16u);
  EXPECT_EQ(array.impossible, 0);
}

// Every allowed case, enumerated, has no triple that the array lacks.
TEST(CoveringArray, has_each_triple_that_an_allowed_case_has) {
  const std::vector<int> sizes{3, 2, 4, 3, 2};
  const Allowed odd_sums = [](const Choice& c) {
    if (c[0] == 2 && c[1] == 1) return false;
    if (std::ranges::count(c, kOpen) > 0) return true;
    return (c[0] + c[2] + c[3]) % 2 == 1;
  };
  std::vector<Choice> all;
  for (int i = 0; i < 3 * 2 * 4 * 3 * 2; ++i) {
    Choice c{i % 3, i / 3 % 2, i / 6 % 4, i / 24 % 3, i / 72};
    if (odd_sums(c)) all.push_back(c);
  }
  const auto array = cover_triples(sizes, odd_sums, 1);
  for (const Choice& c : array.cases) EXPECT_TRUE(odd_sums(c));
  EXPECT_EQ(triples_of(array.cases), triples_of(all));
  EXPECT_LT(array.cases.size(), all.size());
}

TEST(EqualityGrid, has_at_most_5000_cases_and_misses_no_triple) {
  const Grid& made = grid();
  EXPECT_LE(made.cases.size(), 5000u);
  for (const Choice& c : made.array.cases) EXPECT_TRUE(allowed(c));
  EXPECT_EQ(static_cast<int64_t>(triples_of(made.array.cases).size()), made.array.triples);
  std::printf("grid: %zu cases cover %lld triples of choices; %lld are impossible\n", made.cases.size(),
              static_cast<long long>(made.array.triples), static_cast<long long>(made.array.impossible));
}

TEST(EqualityGrid, names_of_cases_are_unique) {
  std::set<std::string> names;
  for (const Case& c : grid().cases) EXPECT_TRUE(names.insert(c.name()).second) << c.name();
}

}  // namespace
}  // namespace tenon::test
