// A strategy's pass, loaded as the core loads it, against a graph made by the test.
#pragma once

#include <gtest/gtest.h>

#include "mock_graph.hpp"
#include "plugin_host.hpp"

namespace tenon::test {

class PassCase : public testing::Test {
 protected:
  explicit PassCase(const std::string& name) : plugin_(plugin_file("parallel", name), host_) {}

  // The message of the error, or "".
  std::string run() {
    const tenon_pass_config config = {sizeof config, options_.size(), host_.table(), options_.data(),
                                      &kMockGraphApi};
    tenon_error error = empty_error();
    return pass().run(&config, &graph_, &error) == TENON_OK ? "" : error.message;
  }
  const tenon_pass& pass() const { return plugin_.table<tenon_pass>(TENON_PASS); }

  tenon_graph graph_;
  MockHost host_;
  LoadedPlugin plugin_;
  OptionValues options_{plugin_.plugin()};
};

}  // namespace tenon::test
