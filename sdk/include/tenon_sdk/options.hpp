// tenon_sdk/options.hpp - declaring the options of a plugin, one line each. Header-only.
//
//     constexpr tenon_option_decl kMomentum = float_option("momentum", "share that is kept", "0.9", 0, 1);
//     constexpr const tenon_option_decl* kOptions[] = {&kMomentum};
//
// The fallback is the default as text; NULL makes the option required. Limits are inclusive.
#pragma once

#include <limits>

#include "tenon/base.h"

namespace tenon::sdk {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// `choices`: the allowed values, separated by '|'; NULL: any.
constexpr tenon_option_decl string_option(const char* name, const char* doc, const char* fallback,
                                          const char* choices = nullptr) {
  return {sizeof(tenon_option_decl), TENON_STRING, name, doc, fallback, choices, 1.0, 0.0};
}
// The elements of a fallback are separated by commas.
constexpr tenon_option_decl strings_option(const char* name, const char* doc, const char* fallback) {
  return {sizeof(tenon_option_decl), TENON_STRINGS, name, doc, fallback, nullptr, 1.0, 0.0};
}
constexpr tenon_option_decl bool_option(const char* name, const char* doc, const char* fallback) {
  return {sizeof(tenon_option_decl), TENON_BOOL, name, doc, fallback, nullptr, 1.0, 0.0};
}
constexpr tenon_option_decl int_option(const char* name, const char* doc, const char* fallback, double min,
                                       double max) {
  return {sizeof(tenon_option_decl), TENON_INT, name, doc, fallback, nullptr, min, max};
}
constexpr tenon_option_decl float_option(const char* name, const char* doc, const char* fallback, double min,
                                         double max = kNoLimit) {
  return {sizeof(tenon_option_decl), TENON_FLOAT, name, doc, fallback, nullptr, min, max};
}

}  // namespace tenon::sdk
