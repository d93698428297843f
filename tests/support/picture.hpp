// A picture of a step, read back from its SVG.
#pragma once

#include <regex>
#include <string>
#include <vector>

namespace tenon::test {

// Of each lane, from above: the share of its area that boxes cover. They do not overlap.
inline std::vector<double> coloured_shares(const std::string& svg) {
  const std::regex rectangle(
      "<rect (class=\"lane\" )?x=\"([^\"]*)\" y=\"([^\"]*)\" width=\"([^\"]*)\" "
      "height=\"([^\"]*)\"[^>]*>(<title>)?");
  std::vector<double> shares;
  double lane = 0;
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), rectangle); it != std::sregex_iterator();
       ++it) {
    const double area = std::stod((*it)[4]) * std::stod((*it)[5]);
    if ((*it)[1].matched) {
      shares.push_back(0);
      lane = area;
    } else if ((*it)[6].matched) {
      shares.back() += area / lane;
    }
  }
  return shares;
}

}  // namespace tenon::test
