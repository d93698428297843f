// Programs of other minors, made up: every struct of embed.h in each size from eight bytes to 64 more than
// ours, at the end of mapped memory.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "support.h"

namespace tenon::test {
namespace {

constexpr size_t kGrowth = 64;

// What a program of another minor passes: `size` bytes of T, the last before memory that is not mapped; what
// we do not know of it is anything.
template <class T>
class Other {
 public:
  Other(const T& whole, size_t size) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))), size_(size) {
    all_ = static_cast<char*>(
        mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(all_, MAP_FAILED);
    EXPECT_EQ(mprotect(all_ + page_, page_, PROT_NONE), 0);
    std::memset(begin(), 0x5a, size_);
    std::memcpy(begin(), &whole, std::min(size_, sizeof(T)));
    const auto told = static_cast<uint32_t>(size_);
    std::memcpy(begin(), &told, sizeof told);
  }
  ~Other() { munmap(all_, 2 * page_); }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;
  T* get() { return reinterpret_cast<T*>(begin()); }
  const char* bytes() const { return begin(); }

 private:
  char* begin() const { return all_ + page_ - size_; }
  size_t page_, size_;
  char* all_;
};

template <class T, class Check>
void for_each_size(const T& whole, Check check) {
  for (size_t size = 8; size <= sizeof(T) + kGrowth; size += 8) {
    SCOPED_TRACE(size);
    Other<T> other(whole, size);
    check(other, size);
  }
}

// A result that was filled: what both know is `whole`, the rest is zero, and the size is the caller's.
template <class T>
void expect_filled(const Other<T>& other, size_t size, const T& whole) {
  uint32_t told = 0;
  std::memcpy(&told, other.bytes(), sizeof told);
  EXPECT_EQ(told, size);
  const size_t known = std::min(size, sizeof(T));
  EXPECT_EQ(std::memcmp(other.bytes() + 4, reinterpret_cast<const char*>(&whole) + 4, known - 4), 0);
  EXPECT_TRUE(std::all_of(other.bytes() + known, other.bytes() + size, [](char c) { return c == 0; }));
}

TEST(EmbedMinors, options_of_any_size_open_a_context) {
  tenon_options whole{};
  for_each_size(whole, [](auto& options, size_t) { const Context context(options.get()); });
}

Json recipe_in(const Folder& folder) {
  const TinyModel tiny;
  return tiny_recipe(gpt2_model(tiny), folder / "corpus.txt", tiny.context);
}

TEST(EmbedMinors, options_of_any_size_open_a_run) {
  const Folder folder;
  const Context context;
  const std::string text = recipe_in(folder).dump();
  for_each_size(tenon_run_options{}, [&](auto& options, size_t) {
    tenon_run* run = nullptr;
    const Outcome opened = outcome_of([&](tenon_error* e) {
      return tenon_run_open_json(context.get(), text.data(), text.size(), options.get(), &run, e);
    });
    EXPECT_EQ(opened.code, TENON_OK) << opened.text;
    EXPECT_EQ(tenon_run_close(run, nullptr), TENON_OK);
  });
}

TEST(EmbedMinors, results_of_any_size_are_filled) {
  const Folder folder;
  const Context context;
  OpenRun run(context, recipe_in(folder), folder.path());
  ASSERT_EQ(run.opened().code, TENON_OK) << run.opened().text;
  tenon_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(tenon_run_info(run.get(), &info, nullptr), TENON_OK);
  for_each_size(tenon_info{}, [&](auto& other, size_t size) {
    EXPECT_EQ(tenon_run_info(run.get(), other.get(), nullptr), TENON_OK);
    expect_filled(other, size, info);
  });
  tenon_eval_result eval{};
  eval.struct_size = sizeof eval;
  ASSERT_EQ(tenon_run_eval(run.get(), &eval, nullptr), TENON_OK);
  for_each_size(tenon_eval_result{}, [&](auto& other, size_t size) {
    EXPECT_EQ(tenon_run_eval(run.get(), other.get(), nullptr), TENON_OK);
    expect_filled(other, size, eval);
  });
}

TEST(EmbedMinors, a_step_answers_a_result_of_any_size) {
  const Folder folder;
  const Context context;
  Json recipe = recipe_in(folder);
  recipe["steps"] = 100;
  OpenRun run(context, recipe, folder.path());
  ASSERT_EQ(run.opened().code, TENON_OK) << run.opened().text;
  int64_t steps = 0;
  for_each_size(tenon_step_result{}, [&](auto& other, size_t size) {
    EXPECT_EQ(tenon_run_step(run.get(), other.get(), nullptr), TENON_OK);
    ++steps;
    if (size < 16) return;
    int64_t step = 0;
    std::memcpy(&step, other.bytes() + 8, sizeof step);
    EXPECT_EQ(step, steps);
    const size_t known = std::min(size, sizeof(tenon_step_result));
    EXPECT_TRUE(std::all_of(other.bytes() + known, other.bytes() + size, [](char c) { return c == 0; }));
  });
}

TEST(EmbedMinors, a_tensor_and_a_check_are_told_in_any_size) {
  const Folder folder;
  const Context context;
  OpenRun run(context, recipe_in(folder), folder.path());
  ASSERT_EQ(run.opened().code, TENON_OK) << run.opened().text;
  const tenon_tensor_info tensor = run.tensor("wte.weight");
  for_each_size(tenon_tensor_info{}, [&](auto& other, size_t size) {
    EXPECT_EQ(tenon_run_tensor(run.get(), "wte.weight", other.get(), nullptr), TENON_OK);
    expect_filled(other, size, tensor);
  });
  const std::string text = recipe_in(folder).dump();
  tenon_check_result result{};
  result.struct_size = sizeof result;
  ASSERT_EQ(tenon_check_json(context.get(), text.data(), text.size(), nullptr, &result, nullptr), TENON_OK);
  for_each_size(tenon_check_result{}, [&](auto& other, size_t size) {
    EXPECT_EQ(tenon_check_json(context.get(), text.data(), text.size(), nullptr, other.get(), nullptr),
              TENON_OK);
    expect_filled(other, size, result);
  });
}

TEST(EmbedMinors, a_batch_is_read_in_any_size) {
  const Folder folder;
  const Context context;
  Json recipe = recipe_in(folder);
  recipe["steps"] = 100;
  OpenRun run(context, recipe, folder.path());
  const tenon_info info = run.info();
  const std::vector<int32_t> values(static_cast<size_t>(info.batch * info.context), 65);
  const tenon_batch whole{0, 0, info.batch, info.context, values.data(), values.data()};
  for_each_size(whole, [&](auto& batch, size_t size) {
    const bool all = size >= sizeof(tenon_batch);
    EXPECT_EQ(tenon_run_step_on(run.get(), batch.get(), nullptr, nullptr), all ? TENON_OK : TENON_E_ARGUMENT);
  });
}

TEST(EmbedMinors, an_error_of_any_size_holds_what_there_is_room_for) {
  for_each_size(tenon_error{}, [](auto& error, size_t size) {
    EXPECT_EQ(tenon_open(nullptr, nullptr, error.get()), TENON_E_ARGUMENT);
    tenon_code code = TENON_OK;
    std::memcpy(&code, error.bytes() + 4, sizeof code);
    EXPECT_EQ(code, TENON_E_ARGUMENT);
    if (size >= sizeof(tenon_error)) {
      EXPECT_TRUE(has(error.get()->message, "tenon_open: 'out' is NULL"));
    }
  });
}

TEST(EmbedMinors, a_size_that_nobody_has_set_is_refused) {
  const Context context;
  for (const uint32_t size : {0u, 4u, 0xffffffffu}) {
    tenon_options options{};
    options.struct_size = size;
    tenon_context* other = nullptr;
    const Outcome said = outcome_of([&](tenon_error* e) { return tenon_open(&options, &other, e); });
    EXPECT_EQ(said.code, TENON_E_ARGUMENT);
    EXPECT_TRUE(has(said.text, "tenon_options.struct_size is " + std::to_string(size))) << said.text;
  }
}

TEST(EmbedMinors, flags_that_the_library_does_not_know_are_refused) {
  const Folder folder;
  const Context context;
  tenon_run_options options = run_options();
  options.flags = 64;
  OpenRun run(context, recipe_in(folder), folder.path(), options);
  EXPECT_EQ(run.opened().code, TENON_E_ARGUMENT);
  EXPECT_TRUE(has(run.opened().text, "flags of which 64 are unknown")) << run.opened().text;
}

}  // namespace
}  // namespace tenon::test
