// Contexts, runs and small recipes for the tests of libtenon.so.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "recipes.hpp"
#include "tenon/embed.h"

namespace tenon::test {

namespace fs = std::filesystem;

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A folder of its own, with corpus.txt in it.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tenon-embed-XXXXXX").string();
    path_ = mkdtemp(name.data());
    std::ofstream text(path_ + "/corpus.txt");
    uint32_t state = 1;
    for (int i = 0; i < 4000; ++i) {
      state = state * 1664525u + 1013904223u;
      text << static_cast<char>(' ' + (state >> 24) % 90);
    }
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline tenon_error no_error() {
  tenon_error error{};
  error.struct_size = sizeof error;
  return error;
}

// What a call returned and said.
struct Outcome {
  tenon_code code = TENON_OK;
  std::string text;
};

template <class Call>
Outcome outcome_of(const Call& call) {
  tenon_error error = no_error();
  const tenon_code code = call(&error);
  if (code < 0) {
    EXPECT_EQ(error.code, code);
  }
  return {code, code < 0 ? error.message : ""};
}

class Context {
 public:
  explicit Context(const tenon_options* options = nullptr) {
    const Outcome opened = outcome_of([&](tenon_error* e) { return tenon_open(options, &it_, e); });
    EXPECT_EQ(opened.code, TENON_OK) << opened.text;
  }
  ~Context() {
    const Outcome closed = outcome_of([&](tenon_error* e) { return tenon_close(it_, e); });
    EXPECT_EQ(closed.code, TENON_OK) << closed.text;
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  tenon_context* get() const { return it_; }

 private:
  tenon_context* it_ = nullptr;
};

inline tenon_run_options run_options() {
  tenon_run_options out{};
  out.struct_size = sizeof out;
  return out;
}

// A whole tensor in memory of this program.
struct HostTensor {
  std::string bytes;
  std::vector<int64_t> dims;
  DLDataType dtype{};

  explicit HostTensor(const tenon_tensor_info& info)
      : bytes(info.bytes, '\x5a'), dims(info.dims, info.dims + info.ndim), dtype(info.dtype) {}
  DLTensor get() {
    return {bytes.data(), {kDLCPU, 0}, static_cast<int32_t>(dims.size()), dtype, dims.data(), nullptr, 0};
  }
};

class OpenRun {
 public:
  OpenRun(const Context& context, const Json& recipe, const std::string& root,
          tenon_run_options options = run_options()) {
    options.data_root = root.c_str();
    const std::string text = recipe.dump();
    opened_ = outcome_of([&](tenon_error* e) {
      return tenon_run_open_json(context.get(), text.data(), text.size(), &options, &it_, e);
    });
  }
  ~OpenRun() {
    const Outcome closed = outcome_of([&](tenon_error* e) { return tenon_run_close(it_, e); });
    EXPECT_EQ(closed.code, TENON_OK) << closed.text;
  }
  OpenRun(const OpenRun&) = delete;
  OpenRun& operator=(const OpenRun&) = delete;

  tenon_run* get() const { return it_; }
  const Outcome& opened() const { return opened_; }

  Outcome step(tenon_step_result* result = nullptr) {
    return outcome_of([&](tenon_error* e) { return tenon_run_step(it_, result, e); });
  }
  Outcome save(const std::string& folder) {
    return outcome_of([&](tenon_error* e) { return tenon_run_save(it_, folder.c_str(), e); });
  }
  Outcome resume(const std::string& folder) {
    return outcome_of([&](tenon_error* e) { return tenon_run_resume(it_, folder.c_str(), e); });
  }
  Outcome close() {
    const Outcome out = outcome_of([&](tenon_error* e) { return tenon_run_close(it_, e); });
    if (out.code == TENON_OK) it_ = nullptr;
    return out;
  }

  // Losses of the next steps.
  std::vector<double> losses(int steps) {
    std::vector<double> out;
    for (int i = 0; i < steps; ++i) {
      tenon_step_result result{};
      result.struct_size = sizeof result;
      const Outcome stepped = step(&result);
      EXPECT_EQ(stepped.code, TENON_OK) << stepped.text;
      out.push_back(result.loss);
    }
    return out;
  }

  tenon_info info() const {
    tenon_info out{};
    out.struct_size = sizeof out;
    const Outcome asked = outcome_of([&](tenon_error* e) { return tenon_run_info(it_, &out, e); });
    EXPECT_EQ(asked.code, TENON_OK) << asked.text;
    return out;
  }

  DLManagedTensorVersioned* view(const std::string& name) {
    DLManagedTensorVersioned* out = nullptr;
    const Outcome exported =
        outcome_of([&](tenon_error* e) { return tenon_run_export(it_, name.c_str(), &out, e); });
    EXPECT_EQ(exported.code, TENON_OK) << exported.text;
    return out;
  }

  tenon_tensor_info tensor(const std::string& name) const {
    tenon_tensor_info out{};
    out.struct_size = sizeof out;
    const Outcome asked =
        outcome_of([&](tenon_error* e) { return tenon_run_tensor(it_, name.c_str(), &out, e); });
    EXPECT_EQ(asked.code, TENON_OK) << asked.text;
    return out;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (uint64_t i = 0; i < info().num_tensors; ++i) out.emplace_back(tenon_run_tensor_name(it_, i));
    return out;
  }
  Outcome read(const std::string& name, std::string& bytes) {
    HostTensor host(tensor(name));
    const DLTensor into = host.get();
    const Outcome out =
        outcome_of([&](tenon_error* e) { return tenon_run_read(it_, name.c_str(), &into, e); });
    bytes = std::move(host.bytes);
    return out;
  }
  Outcome write(const std::string& name, const std::string& bytes) {
    HostTensor host(tensor(name));
    host.bytes = bytes;
    const DLTensor from = host.get();
    return outcome_of([&](tenon_error* e) { return tenon_run_write(it_, name.c_str(), &from, e); });
  }
  // All bytes of all tensors, by name, whatever the mesh.
  std::map<std::string, std::string> read_all() {
    std::map<std::string, std::string> out;
    for (const std::string& name : names()) {
      const Outcome read_it = read(name, out[name]);
      EXPECT_EQ(read_it.code, TENON_OK) << read_it.text;
    }
    return out;
  }
  void write_all(const std::map<std::string, std::string>& all) {
    for (const auto& [name, bytes] : all) {
      const Outcome written = write(name, bytes);
      EXPECT_EQ(written.code, TENON_OK) << written.text;
    }
  }
  Outcome abort() {
    return outcome_of([&](tenon_error* e) { return tenon_run_abort(it_, e); });
  }

  // All bytes of all tensors, by name, in place: of one rank.
  std::map<std::string, std::string> tensors() {
    std::map<std::string, std::string> out;
    for (uint64_t i = 0; i < info().num_tensors; ++i) {
      const std::string name = tenon_run_tensor_name(it_, i);
      DLManagedTensorVersioned* const tensor = view(name);
      if (tensor == nullptr) continue;
      int64_t count = 1;
      for (int32_t d = 0; d < tensor->dl_tensor.ndim; ++d) count *= tensor->dl_tensor.shape[d];
      const auto bytes = static_cast<size_t>(count) * tensor->dl_tensor.dtype.bits / 8;
      out[name].assign(static_cast<const char*>(tensor->dl_tensor.data), bytes);
      tensor->deleter(tensor);
    }
    return out;
  }

 private:
  tenon_run* it_ = nullptr;
  Outcome opened_;
};

inline Json tiny(const std::string& mode = "fast", const std::string& comm = "comm/local") {
  TinyModel model;
  Json recipe = tiny_recipe(gpt2_model(model), "corpus.txt", model.context);
  recipe["numerics"]["mode"] = mode;
  recipe["kernels"]["plugin"] = "kernels/cpu";
  recipe["comm"]["plugin"] = comm;
  recipe["steps"] = 6;
  return recipe;
}

inline bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

inline void expect_same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(same_bits(a[i], b[i])) << "step " << i + 1 << ": " << a[i] << " and " << b[i];
}

}  // namespace tenon::test
