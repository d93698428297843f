// Small resolved recipes for tests: gpt2-like, llama-like and mixture-of-experts models over a text file.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace tenon::test {

struct TinyModel {
  int round =
      1;  // layers of a round, of which `layers` is a multiple; above 1 the first of each moe round is dense
  int layers = 2, width = 16, ffn = 24, groups = 2, reps = 1, head = 8, vocab = 256, context = 12;
  // moe: choices of a token; tokens of a routing group, and its slots at an expert
  int experts = 4, choices = 2, routed = 6, slots = 3;
  bool tied = true;
  double dropout = 0.0;
};

// Entries of a model's "params" and "ops", and of "dims".
Json param(const std::string& name, const std::vector<Json>& dims, const std::string& kind = "normal",
           double std = 0.1);
Json op(const std::string& kind, const std::vector<std::string>& in, const std::vector<std::string>& out,
        const Json& attrs = nullptr);
Json dim(const char* name, int size);

Json gpt2_model(const TinyModel& m);
Json llama_model(const TinyModel& m);
Json moe_model(const TinyModel& m);

// A whole recipe around a model. Change what a test is about.
Json tiny_recipe(const Json& model, const std::string& file, int context);

}  // namespace tenon::test
