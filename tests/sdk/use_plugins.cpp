// Loads the plugins that build_outside has built, by id, and uses them. Run by that script, which names
// their folder and a folder to write into.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "base/parallel.h"
#include "host/plugins/registry.h"

namespace tenon {
namespace {

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

class Outside : public ::testing::Test {
 protected:
  Outside() : registry_(config()) {}
  static RegistryConfig config() {
    RegistryConfig config;
    config.directories = {setting("TENON_TEST_PLUGINS")};
    config.default_directories = false;
    return config;
  }
  PluginRegistry registry_;
};

// Opened signsgd with the given options.
class SignSgd {
 public:
  SignSgd(PluginRegistry& registry, const char* options) {
    const Result<const Plugin*> plugin = registry.load("optimizer/signsgd");
    EXPECT_TRUE(plugin.ok()) << plugin.error().text();
    table_ = *(*plugin)->interface<tenon_optimizer>();
    const auto values = (*plugin)->read_options(Json::parse(options), "/optimizer/options");
    EXPECT_TRUE(values.ok()) << values.error().text();
    const tenon_optimizer_config config = {sizeof config, values->size(), registry.host().table(),
                                           values->data()};
    code_ = table_->open(&config, &state_, &error_);
  }
  ~SignSgd() { table_->close(state_); }
  tenon_code code() const { return code_; }
  const char* message() const { return error_.message; }
  uint32_t num_slots() const {
    tenon_optimizer_info info{};
    info.struct_size = sizeof info;
    EXPECT_EQ(table_->describe(state_, &info, nullptr), TENON_OK);
    if (info.num_slots == 1) {
      EXPECT_STREQ(info.slots[0]->name, "momentum");
    }
    return info.num_slots;
  }
  tenon_code step(uint32_t dtype, void* param, const void* grad, void* slot, uint64_t count, double lr,
                  double grad_scale) {
    void* slots[] = {slot};
    tenon_update update{};
    update.struct_size = sizeof update;
    update.dtype = dtype;
    update.count = count;
    update.rows = 1;
    update.param = param;
    update.grad = grad;
    update.slots = slots;
    tenon_update* updates[] = {&update};
    const tenon_step_scalars scalars = {sizeof scalars, 0, 1, lr, grad_scale};
    const tenon_stream stream = {{kDLCPU, 0}, nullptr};
    return table_->step(state_, &stream, updates, 1, &scalars, &error_);
  }

 private:
  const tenon_optimizer* table_ = nullptr;
  tenon_optimizer_state* state_ = nullptr;
  tenon_error error_ = empty_abi_error();
  tenon_code code_ = TENON_OK;
};

TEST_F(Outside, signsgd_moves_by_the_learning_rate_against_the_sign) {
  SignSgd signsgd(registry_, "{}");
  ASSERT_EQ(signsgd.code(), TENON_OK);
  EXPECT_EQ(signsgd.num_slots(), 0u);
  std::vector<double> param = {1, 1, 1};
  const std::vector<double> grad = {5, -1e-9, 0};
  ASSERT_EQ(signsgd.step(TENON_F64, param.data(), grad.data(), nullptr, 3, 0.25, 0.5), TENON_OK);
  EXPECT_EQ(param, (std::vector<double>{0.75, 1.25, 1}));
}

TEST_F(Outside, signsgd_averages_gradients_and_decays_weights) {
  SignSgd signsgd(registry_, R"({"momentum": 0.5, "weight_decay": 0.5})");
  EXPECT_EQ(signsgd.num_slots(), 1u);
  std::vector<double> param = {1}, average = {0};
  double grad = 4;  // average 2, sign +1: 1 - 0.125 * (1 + 0.5 * 1)
  ASSERT_EQ(signsgd.step(TENON_F64, param.data(), &grad, average.data(), 1, 0.125, 1), TENON_OK);
  EXPECT_EQ(average[0], 2.0);
  EXPECT_EQ(param[0], 0.8125);
  grad = -1;  // average 0.5: still +1, though the gradient has turned
  ASSERT_EQ(signsgd.step(TENON_F64, param.data(), &grad, average.data(), 1, 0.125, 1), TENON_OK);
  EXPECT_EQ(average[0], 0.5);
  EXPECT_EQ(param[0], 0.8125 - 0.125 * (1 + 0.5 * 0.8125));
}

// Cut anywhere, on any number of threads: the same bits.
TEST_F(Outside, signsgd_does_not_depend_on_cuts_or_threads) {
  SignSgd signsgd(registry_, R"({"momentum": 0.9, "weight_decay": 0.1})");
  constexpr size_t kCount = 100003, kCut = 33331;
  std::vector<float> grad(kCount), whole(kCount), cut(kCount), whole_slot(kCount), cut_slot(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    grad[i] = std::sin(static_cast<float>(i));
    whole[i] = cut[i] = std::cos(static_cast<float>(i));
    whole_slot[i] = cut_slot[i] = grad[i] / 3;
  }
  const auto pool = std::move(ThreadPool::create(3)).value();
  {
    const ThreadPool::Use use(*pool);
    signsgd.step(TENON_F32, whole.data(), grad.data(), whole_slot.data(), kCount, 0.01, 0.7);
  }
  signsgd.step(TENON_F32, cut.data(), grad.data(), cut_slot.data(), kCut, 0.01, 0.7);
  signsgd.step(TENON_F32, cut.data() + kCut, grad.data() + kCut, cut_slot.data() + kCut, kCount - kCut, 0.01,
               0.7);
  EXPECT_EQ(whole, cut);
  EXPECT_EQ(whole_slot, cut_slot);
  EXPECT_NE(whole[kCount - 1], std::cos(static_cast<float>(kCount - 1))) << "the last element moves too";
}

TEST_F(Outside, signsgd_lets_a_gradient_that_is_no_number_be_seen) {
  SignSgd signsgd(registry_, "{}");
  double param = 1;
  const double grad = std::numeric_limits<double>::quiet_NaN();
  ASSERT_EQ(signsgd.step(TENON_F64, &param, &grad, nullptr, 1, 0.1, 1), TENON_OK);
  EXPECT_TRUE(std::isnan(param));
}

TEST_F(Outside, signsgd_says_what_it_cannot_do) {
  SignSgd endless(registry_, R"({"momentum": 1})");
  EXPECT_EQ(endless.code(), TENON_E_ARGUMENT);
  EXPECT_STREQ(endless.message(), "momentum = 1 would never look at a gradient: set it below 1");
  SignSgd signsgd(registry_, "{}");
  uint16_t param = 7;
  EXPECT_EQ(signsgd.step(TENON_BF16, &param, &param, nullptr, 1, 0.1, 1), TENON_E_UNSUPPORTED);
  EXPECT_STREQ(signsgd.message(), "optimizer/signsgd updates f32 and f64 parameters only");
  EXPECT_EQ(param, 7);
}

TEST_F(Outside, readme_holds_the_options_as_they_are_declared) {
  for (const auto& [id, folder] : {std::pair{"optimizer/signsgd", "examples/optimizer_signsgd"},
                                   std::pair{"sink/template", "template"}}) {
    const Result<const Plugin*> plugin = registry_.load(id);
    ASSERT_TRUE(plugin.ok()) << plugin.error().text();
    std::stringstream text;
    text << std::ifstream(std::string(TENON_SOURCE_DIR) + "/sdk/" + folder + "/README.md").rdbuf();
    const std::string rows = options_markdown((*plugin)->options());
    EXPECT_NE(text.str().find(rows), std::string::npos) << folder << "/README.md should hold\n" << rows;
  }
}

TEST_F(Outside, template_writes_one_line_per_record) {
  const Result<const Plugin*> plugin = registry_.load("sink/template");
  ASSERT_TRUE(plugin.ok()) << plugin.error().text();
  const tenon_sink* table = *(*plugin)->interface<tenon_sink>();
  const auto options = (*plugin)->read_options(Json::parse(R"({"file": "out.txt"})"), "/log");
  ASSERT_TRUE(options.ok());
  const std::string folder = setting("TENON_TEST_FOLDER");
  tenon_error error = empty_abi_error();
  tenon_sink_state* sink = nullptr;
  tenon_sink_config config = {.struct_size = sizeof config,
                              .num_options = options->size(),
                              .host = registry_.host().table(),
                              .options = options->data(),
                              .directory = folder.c_str(),
                              .run = "a-run",
                              .recipe = "{}"};
  ASSERT_EQ(table->open(&config, &sink, &error), TENON_OK) << error.message;
  const tenon_metric loss = {sizeof loss, 0, "loss", 1.5}, lr = {sizeof lr, 0, "lr", 0.001};
  const tenon_metric* const metrics[] = {&loss, &lr};
  const tenon_text path = {sizeof path, 0, "path", "checkpoints/step-10"};
  const tenon_text* const texts[] = {&path};
  const tenon_record record = {.struct_size = sizeof record,
                               .num_metrics = 2,
                               .event = "save",
                               .step = 10,
                               .attempt = 1,
                               .metrics = metrics,
                               .texts = texts,
                               .num_texts = 1,
                               .reserved = 0};
  EXPECT_EQ(table->write(sink, &record, &error), TENON_OK);
  std::stringstream text;
  text << std::ifstream(folder + "/out.txt").rdbuf();
  EXPECT_EQ(text.str(), "save 10 loss=1.5 lr=0.001 path=checkpoints/step-10\n")
      << "visible when write returns";
  table->close(sink);
  config.directory = "/nonexistent";
  EXPECT_EQ(table->open(&config, &sink, &error), TENON_E_IO);
  EXPECT_STREQ(error.message, "cannot open /nonexistent/out.txt");
  EXPECT_STREQ(error.vendor, "errno");
}

}  // namespace
}  // namespace tenon
