#include "host/plugins/guard.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace tenon {
namespace {

template <class Table>
TableCopy copy_of(const Table& table) {
  TableCopy out((sizeof table + sizeof(uint64_t) - 1) / sizeof(uint64_t));
  std::memcpy(out.data(), &table, sizeof table);
  return out;
}

template <class Table>
const Table& guarded_of(const Table& table, const char* id) {
  return *static_cast<const Table*>(*guarded(interface_spec<Table>(), &table, copy_of(table), id));
}

tenon_code g_answer = TENON_OK;  // of the sink's functions
bool g_leaves_null = false;

tenon_sink a_sink() {
  tenon_sink out{};
  out.struct_size = sizeof out;
  out.open = [](auto, tenon_sink_state** state, tenon_error*) {
    if (!g_leaves_null) *state = reinterpret_cast<tenon_sink_state*>(&g_answer);
    return g_answer;
  };
  out.close = [](auto) { _exit(3); };
  out.write = [](auto, auto, auto) { return g_answer; };
  return out;
}

TEST(Guard, passes_arguments_and_answers_on) {
  static const tenon_sink sink = a_sink();
  const tenon_sink& table = guarded_of(sink, "sink/a");
  EXPECT_EQ(&guarded_of(sink, "sink/a"), &table) << "the same table twice";
  tenon_sink_state* state = nullptr;
  for (const tenon_code code : std::vector<tenon_code>{TENON_OK, TENON_E_MEMORY, -77}) {
    g_answer = code;
    EXPECT_EQ(table.open(nullptr, &state, nullptr), code);
    EXPECT_EQ(static_cast<void*>(state), &g_answer);
    EXPECT_EQ(table.write(state, nullptr, nullptr), code);
  }
}

TEST(Guard, refuses_codes_that_are_none) {
  static const tenon_sink sink = a_sink();
  tenon_error error = empty_abi_error();
  g_answer = 99;
  EXPECT_EQ(guarded_of(sink, "sink/a").write(nullptr, nullptr, &error), TENON_E_INTERNAL);
  EXPECT_STREQ(error.message, "answered 99, which is no code of this call");
  EXPECT_EQ(guarded_of(sink, "sink/a").write(nullptr, nullptr, nullptr), TENON_E_INTERNAL);
}

// A transfer that is still going on, taken for one that is done, would be numbers out of nowhere.
TEST(Guard, takes_pending_for_an_answer_only_where_that_was_the_question) {
  static tenon_comm comm{};
  comm.struct_size = sizeof comm;
  comm.test = [](auto, auto) -> tenon_code { return TENON_PENDING; };
  comm.wait_host = [](auto, auto, auto) -> tenon_code { return TENON_PENDING; };
  EXPECT_EQ(guarded_of(comm, "comm/a").test(nullptr, nullptr), TENON_PENDING);
  EXPECT_EQ(guarded_of(comm, "comm/a").wait_host(nullptr, -1, nullptr), TENON_E_INTERNAL);
}

TEST(Guard, takes_a_rank_for_no_code) {
  static tenon_schedule schedule{};
  schedule.struct_size = sizeof schedule;
  schedule.owner = [](auto, auto stage) { return stage; };
  for (const int32_t stage : {0, 1, 2, 3, 99}) {
    EXPECT_EQ(guarded_of(schedule, "schedule/a").owner(nullptr, stage), stage);
  }
}

TEST(Guard, refuses_success_without_an_object) {
  static const tenon_sink sink = a_sink();
  tenon_error error = empty_abi_error();
  tenon_sink_state* state = nullptr;
  g_answer = TENON_OK;
  g_leaves_null = true;
  EXPECT_EQ(guarded_of(sink, "sink/a").open(nullptr, &state, &error), TENON_E_INTERNAL);
  EXPECT_STREQ(error.message, "said that it succeeded, and gave NULL");
  g_answer = TENON_E_IO;
  EXPECT_EQ(guarded_of(sink, "sink/a").open(nullptr, &state, &error), TENON_E_IO);
  g_leaves_null = false;
}

TEST(Guard, leaves_out_what_is_not_there) {
  static const tenon_data data{};
  static tenon_optimizer optimizer{};
  optimizer.struct_size = offsetof(tenon_optimizer, step);  // an older plugin's, should there be one
  optimizer.device_type = kDLCPU;
  EXPECT_EQ(guarded_of(data, "data/a").encode, nullptr);
  EXPECT_EQ(guarded_of(optimizer, "optimizer/a").step, nullptr);
  EXPECT_EQ(guarded_of(optimizer, "optimizer/a").struct_size, offsetof(tenon_optimizer, step));
  EXPECT_EQ(guarded_of(optimizer, "optimizer/a").device_type, uint32_t{kDLCPU});
}

TEST(Guard, a_death_is_found_by_plugin_and_slot) {
  const trail::Shared shared = std::move(trail::Shared::create()).value();
  static const tenon_sink sink = a_sink();
  const pid_t child = fork();
  if (child == 0) {
    const_cast<trail::Shared&>(shared).watch();
    guarded_of(sink, "sink/a").close(nullptr);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 3);
  ASSERT_EQ(shared.found().size(), 1u);
  EXPECT_EQ(text_of_call(shared.found()[0]), "sink/a, close");
}

TEST(Guard, an_end_outside_of_slots_is_found_too) {
  const trail::Shared shared = std::move(trail::Shared::create()).value();
  if (const pid_t child = fork(); child == 0) {
    const_cast<trail::Shared&>(shared).watch();
    const OwnMark mark("/some/file.so", OwnCall::load);
    _exit(0);
  } else {
    waitpid(child, nullptr, 0);
  }
  ASSERT_EQ(shared.found().size(), 1u);
  EXPECT_EQ(text_of_call(shared.found()[0]), "/some/file.so, the loading of its file");
  EXPECT_EQ(text_of_call({"a", 99, 0, 1}), "");
  EXPECT_EQ(text_of_call({"a", 0, 99, 1}), "");
  EXPECT_EQ(text_of_call({"a", 1, 1, 1}), "");
}

TEST(Guard, tables_are_limited) {
  static std::vector<tenon_pass> many(kMaxGuarded + 1);
  for (size_t i = 0; i < kMaxGuarded; ++i)
    ASSERT_TRUE(guarded(interface_spec<tenon_pass>(), &many[i], copy_of(many[i]), "parallel/a").ok());
  const auto one_more =
      guarded(interface_spec<tenon_pass>(), &many.back(), copy_of(many.back()), "parallel/b");
  ASSERT_FALSE(one_more.ok());
  EXPECT_EQ(one_more.error().code, "A005");
}

}  // namespace
}  // namespace tenon
