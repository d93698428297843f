// What the library says when it is used wrongly.
#include <array>

#include "support.h"

namespace tenon::test {
namespace {

void expect_refused(const Outcome& outcome, tenon_code code, const std::string& part) {
  EXPECT_EQ(outcome.code, code) << outcome.text;
  EXPECT_TRUE(has(outcome.text, part)) << outcome.text;
}

TEST(Errors, a_NULL_names_the_function_and_the_argument) {
  const Folder folder;
  const Context context;
  OpenRun run(context, tiny(), folder.path());
  tenon_run* out = nullptr;
  const auto refused = [](const std::string& part, const auto& call) {
    expect_refused(outcome_of(call), TENON_E_ARGUMENT, part + "' is NULL");
    EXPECT_EQ(call(nullptr), TENON_E_ARGUMENT);
  };
  using E = tenon_error;
  refused("tenon_open: 'out", [](E* e) { return tenon_open(nullptr, nullptr, e); });
  refused("tenon_run_open: 'context",
          [&](E* e) { return tenon_run_open(nullptr, "r.lua", nullptr, 0, nullptr, &out, e); });
  refused("tenon_run_open: 'recipe",
          [&](E* e) { return tenon_run_open(context.get(), nullptr, nullptr, 0, nullptr, &out, e); });
  refused("tenon_run_open: 'out",
          [&](E* e) { return tenon_run_open(context.get(), "r.lua", nullptr, 0, nullptr, nullptr, e); });
  refused("tenon_run_open: 'overrides",
          [&](E* e) { return tenon_run_open(context.get(), "r.lua", nullptr, 1, nullptr, &out, e); });
  refused("tenon_run_open_json: 'text",
          [&](E* e) { return tenon_run_open_json(context.get(), nullptr, 0, nullptr, &out, e); });
  refused("tenon_run_step: 'run", [](E* e) { return tenon_run_step(nullptr, nullptr, e); });
  refused("tenon_run_eval: 'result", [&](E* e) { return tenon_run_eval(run.get(), nullptr, e); });
  refused("tenon_run_save: 'directory", [&](E* e) { return tenon_run_save(run.get(), nullptr, e); });
  refused("tenon_run_resume: 'run", [](E* e) { return tenon_run_resume(nullptr, "x", e); });
  refused("tenon_run_info: 'info", [&](E* e) { return tenon_run_info(run.get(), nullptr, e); });
  refused("tenon_run_export: 'name", [&](E* e) { return tenon_run_export(run.get(), nullptr, nullptr, e); });
  refused("tenon_run_logits: 'count", [&](E* e) {
    const int32_t token = 1;
    return tenon_run_logits(run.get(), &token, 1, nullptr, nullptr, e);
  });
  refused("tenon_run_step_on: 'batch",
          [&](E* e) { return tenon_run_step_on(run.get(), nullptr, nullptr, e); });
  refused("tenon_run_set_lr: 'run", [](E* e) { return tenon_run_set_lr(nullptr, nullptr, e); });
  refused("tenon_run_abort: 'run", [](E* e) { return tenon_run_abort(nullptr, e); });
  refused("tenon_run_tensor: 'info", [&](E* e) { return tenon_run_tensor(run.get(), "x", nullptr, e); });
  refused("tenon_run_read: 'into", [&](E* e) { return tenon_run_read(run.get(), "x", nullptr, e); });
  refused("tenon_run_write: 'name", [&](E* e) { return tenon_run_write(run.get(), nullptr, nullptr, e); });
  refused("tenon_check: 'recipe",
          [&](E* e) { return tenon_check(context.get(), nullptr, nullptr, 0, nullptr, nullptr, e); });
  refused("tenon_check_json: 'text",
          [&](E* e) { return tenon_check_json(context.get(), nullptr, 0, nullptr, nullptr, e); });
  EXPECT_EQ(tenon_run_tensor_name(nullptr, 0), nullptr);
  EXPECT_EQ(tenon_close(nullptr, nullptr), TENON_OK);
  EXPECT_EQ(tenon_run_close(nullptr, nullptr), TENON_OK);
  EXPECT_EQ(out, nullptr);
}

TEST(Errors, a_struct_without_its_size_is_refused) {
  const Folder folder;
  const Context context;
  OpenRun run(context, tiny(), folder.path());
  tenon_options options{};
  tenon_context* out = nullptr;
  expect_refused(outcome_of([&](tenon_error* e) { return tenon_open(&options, &out, e); }), TENON_E_ARGUMENT,
                 "tenon_options.struct_size is 0\n  fix: set it to sizeof(tenon_options) before the call");
  tenon_step_result result{};
  expect_refused(run.step(&result), TENON_E_ARGUMENT, "tenon_step_result.struct_size is 0");
  EXPECT_EQ(run.info().steps_done, 0);
}

TEST(Errors, a_number_of_threads_that_cannot_be_is_refused) {
  for (const int32_t threads : {-1, 4097}) {
    tenon_options options{};
    options.struct_size = sizeof options;
    options.threads = threads;
    tenon_context* out = nullptr;
    expect_refused(
        outcome_of([&](tenon_error* e) { return tenon_open(&options, &out, e); }), TENON_E_ARGUMENT,
        "tenon_options.threads is " + std::to_string(threads) + "\n  fix: 0: choose; at most 4096");
    EXPECT_EQ(out, nullptr);
  }
}

// Nothing is written to it, wherever it ends; the log says why.
TEST(Errors, an_error_without_its_size_lets_no_call_begin) {
  std::string logged;
  tenon_options options{};
  options.struct_size = sizeof options;
  options.log_user = &logged;
  options.log = [](void* user, uint32_t, const char*, uint32_t, const char* message) {
    *static_cast<std::string*>(user) += message;
  };
  const Folder folder;
  const Context context(&options);
  OpenRun run(context, tiny(), folder.path());
  for (const uint32_t size : {0u, 7u, 4097u, 0xa5a5a5a5u}) {
    std::array<unsigned char, sizeof(tenon_error)> before{}, after{};
    before.fill(0xa5);
    std::memcpy(before.data(), &size, sizeof size);
    after = before;
    logged.clear();
    EXPECT_EQ(tenon_run_step(run.get(), nullptr, reinterpret_cast<tenon_error*>(after.data())),
              TENON_E_ARGUMENT);
    EXPECT_EQ(after, before);
    EXPECT_TRUE(has(logged, "tenon_error.struct_size is " + std::to_string(size))) << logged;
  }
  EXPECT_EQ(run.info().steps_done, 0);
}

TEST(Errors, a_bigger_struct_of_a_later_header_is_filled_as_far_as_known) {
  const Folder folder;
  const Context context;
  OpenRun run(context, tiny(), folder.path());
  struct Later {
    tenon_step_result now;
    int64_t more;
  } later{};
  later.now.struct_size = sizeof later;
  later.more = 77;
  EXPECT_EQ(run.step(&later.now).code, TENON_OK);
  EXPECT_EQ(later.now.struct_size, sizeof later) << "the size is its owner's";
  EXPECT_EQ(later.now.step, 1);
  EXPECT_EQ(later.more, 0) << "what the library does not know is zero";
}

Outcome open_file(const Context& context, const std::string& path,
                  const std::vector<const char*>& overrides) {
  tenon_run* run = nullptr;
  const Outcome out = outcome_of([&](tenon_error* e) {
    return tenon_run_open(context.get(), path.c_str(), overrides.data(),
                          static_cast<uint32_t>(overrides.size()), nullptr, &run, e);
  });
  EXPECT_EQ(run, nullptr);
  return out;
}

TEST(Errors, a_missing_recipe_is_named) {
  const Folder folder;
  const Context context;
  for (const char* name : {"none.lua", "none.json"}) {
    const Outcome missing = open_file(context, folder / name, {});
    EXPECT_LT(missing.code, 0);
    EXPECT_TRUE(has(missing.text, "error[R015]") && has(missing.text, folder / name) &&
                has(missing.text, "No such file"))
        << missing.text;
  }
}

TEST(Errors, an_override_that_the_recipe_does_not_know_is_named) {
  const Folder folder;
  const Context context;
  fs::copy_file(std::string(TENON_RECIPES) + "/mlp.lua", folder / "mlp.lua");
  expect_refused(open_file(context, folder / "mlp.lua", {"file=corpus.txt", "stpes=3"}), TENON_E_RECIPE,
                 "unknown parameter 'stpes'");
  expect_refused(open_file(context, folder / "mlp.lua", {"file=corpus.txt", "steps"}), TENON_E_RECIPE,
                 "'steps' on the command line is not key=value");
}

TEST(Errors, a_recipe_with_an_unknown_plugin_or_option_says_where) {
  const Folder folder;
  const Context context;
  Json recipe = tiny();
  recipe["optimizer"]["options"]["wieght_decay"] = 0.1;
  OpenRun unknown(context, recipe, folder.path());
  EXPECT_TRUE(has(unknown.opened().text, "wieght_decay") && has(unknown.opened().text, "/optimizer/options"))
      << unknown.opened().text;
  recipe = tiny();
  recipe["optimizer"]["plugin"] = "optimizer/adamv";
  OpenRun missing(context, recipe, folder.path());
  EXPECT_TRUE(has(missing.opened().text, "error[A002]: plugin 'optimizer/adamv' not found"))
      << missing.opened().text;
}

TEST(Errors, text_that_is_no_recipe_is_refused) {
  const Folder folder;
  const Context context;
  tenon_run* run = nullptr;
  const std::string text = "{\"tenon\": 1,";
  expect_refused(outcome_of([&](tenon_error* e) {
                   return tenon_run_open_json(context.get(), text.data(), text.size(), nullptr, &run, e);
                 }),
                 TENON_E_ARGUMENT, "error[R010]");
}

TEST(Errors, a_message_that_does_not_fit_goes_to_the_log_in_full) {
  const Folder folder;
  std::vector<std::string> lines;
  tenon_options options{};
  options.struct_size = sizeof options;
  options.log_user = &lines;
  options.log = [](void* user, uint32_t, const char*, uint32_t, const char* message) {
    static_cast<std::vector<std::string>*>(user)->push_back(message);
  };
  const Context context(&options);
  Json recipe = tiny();
  recipe["kernels"]["plugin"] = "kernels/nothing";
  OpenRun run(context, recipe, folder.path());
  EXPECT_EQ(run.opened().text.size(), sizeof(tenon_error::message) - 1);
  ASSERT_EQ(lines.size(), 1u);
  const std::string& text = run.opened().text;
  const size_t cut = text.find("...\n");  // in the cause: place and fix stay
  ASSERT_NE(cut, std::string::npos) << text;
  EXPECT_TRUE(lines[0].starts_with(text.substr(0, cut)));
  EXPECT_TRUE(lines[0].ends_with(text.substr(cut + 3)));
  EXPECT_GT(lines[0].size(), text.size());
}

TEST(Errors, run_options_that_contradict_each_other_are_refused) {
  const Folder folder;
  const Context context;
  const auto refused = [&](const std::string& part, const auto& change) {
    tenon_run_options options = run_options();
    change(options);
    OpenRun run(context, tiny(), folder.path(), options);
    expect_refused(run.opened(), TENON_E_ARGUMENT, part);
  };
  refused("a negative number of ranks", [](auto& o) { o.virtual_ranks = -1; });
  refused("rank 1 without a world", [](auto& o) { o.rank = 1; });
  refused("virtual_ranks and world together", [](auto& o) { o.virtual_ranks = 2, o.world = 2; });
  refused("rank 2 of 2", [](auto& o) { o.rank = 2, o.world = 2; });
  refused("'secret' is NULL", [](auto& o) { o.world = 2; });
  static const uint8_t secret[32] = {1};
  refused("port 0", [](auto& o) { o.world = 2, o.secret = secret; });
}

TEST(Errors, comm_local_does_not_connect_processes) {
  const Folder folder;
  const Context context;
  tenon_run_options options = run_options();
  options.world = 1;
  OpenRun run(context, tiny("fast", "comm/local"), folder.path(), options);
  expect_refused(run.opened(), TENON_E_RECIPE, "comm/local connects ranks of one process only");
}

TEST(Errors, a_context_with_an_open_run_does_not_close) {
  const Folder folder;
  const Context context;
  OpenRun run(context, tiny(), folder.path());
  expect_refused(outcome_of([&](tenon_error* e) { return tenon_close(context.get(), e); }), TENON_E_STATE,
                 "closing a context with 1 open run");
  EXPECT_EQ(run.step().code, TENON_OK);
}

TEST(Errors, bad_tokens_are_refused_and_the_run_goes_on) {
  const Folder folder;
  const Context context;
  for (const int ranks : {1, 2}) {
    tenon_run_options options = run_options();
    options.virtual_ranks = ranks;
    OpenRun run(context, tiny(), folder.path(), options);
    const auto logits = [&](const std::vector<int32_t>& tokens) {
      uint64_t count = 0;
      return outcome_of([&](tenon_error* e) {
        return tenon_run_logits(run.get(), tokens.data(), tokens.size(), nullptr, &count, e);
      });
    };
    expect_refused(logits({65, 256}), TENON_E_ARGUMENT, "256");
    expect_refused(logits({-1}), TENON_E_ARGUMENT, "-1");
    expect_refused(logits(std::vector<int32_t>(13, 65)), TENON_E_ARGUMENT, "13 tokens, where 1 to 12 fit");
    EXPECT_EQ(run.step().code, TENON_OK);
  }
}

TEST(Errors, a_missing_helper_says_where_it_was_looked_for) {
  const Folder folder;
  tenon_options options{};
  options.struct_size = sizeof options;
  options.helper = "/nonexistent/tenon-recipe";
  const Context context(&options);
  fs::copy_file(std::string(TENON_RECIPES) + "/mlp.lua", folder / "mlp.lua");
  const Outcome missing = open_file(context, folder / "mlp.lua", {"file=corpus.txt"});
  EXPECT_EQ(missing.code, TENON_E_IO);
  EXPECT_TRUE(has(missing.text, "cannot start '/nonexistent/tenon-recipe'")) << missing.text;
}

}  // namespace
}  // namespace tenon::test
