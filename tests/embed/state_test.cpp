// Views of tensors in place, checkpoints, and what a run refuses when.
#include <pthread.h>

#include <atomic>
#include <thread>

#include "support.h"

namespace tenon::test {
namespace {

TEST(Views, a_view_is_dense_read_only_and_in_place) {
  const Folder folder;
  const Context context;
  OpenRun run(context, tiny(), folder.path());
  DLManagedTensorVersioned* const view = run.view("h.1.attn.q.weight");
  ASSERT_NE(view, nullptr);
  const DLTensor& tensor = view->dl_tensor;
  EXPECT_EQ(view->version.major, 1u);
  EXPECT_EQ(view->flags, DLPACK_FLAG_BITMASK_READ_ONLY);
  EXPECT_EQ(tensor.device.device_type, kDLCPU);
  EXPECT_EQ(tensor.dtype.code, kDLFloat);
  EXPECT_EQ(tensor.dtype.bits, 32);
  EXPECT_EQ(tensor.dtype.lanes, 1);
  EXPECT_EQ(std::vector<int64_t>(tensor.shape, tensor.shape + tensor.ndim),
            (std::vector<int64_t>{2, 1, 8, 16}));
  EXPECT_EQ(std::vector<int64_t>(tensor.strides, tensor.strides + tensor.ndim),
            (std::vector<int64_t>{128, 128, 16, 1}));
  EXPECT_EQ(tensor.byte_offset, 0u);
  const void* const data = tensor.data;
  view->deleter(view);
  EXPECT_EQ(run.step().code, TENON_OK);
  DLManagedTensorVersioned* const again = run.view("h.1.attn.q.weight");
  EXPECT_EQ(again->dl_tensor.data, data);
  again->deleter(again);
}

TEST(Views, a_step_changes_what_a_later_view_shows) {
  const Folder folder;
  const Context context;
  OpenRun run(context, tiny(), folder.path());
  const auto before = run.tensors();
  run.losses(1);
  const auto after = run.tensors();
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, bytes] : before) {
    if (has(name, "attn.k.bias")) continue;  // its gradient is zero in theory
    EXPECT_NE(bytes, after.at(name)) << name;
  }
}

TEST(Views, steps_resuming_and_closing_are_refused_while_one_lives) {
  const Folder folder;
  const Context context;
  OpenRun run(context, tiny(), folder.path());
  run.losses(1);
  ASSERT_EQ(run.save(folder / "out").code, TENON_OK);
  DLManagedTensorVersioned* const first = run.view("wpe.weight");
  DLManagedTensorVersioned* const second = run.view("wpe.weight");
  const std::string expected = "while 'wpe.weight' is exported (2 live views)";
  for (const Outcome& refused : {run.step(), run.resume(folder / "out"), run.close()}) {
    EXPECT_EQ(refused.code, TENON_E_STATE);
    EXPECT_TRUE(has(refused.text, expected)) << refused.text;
  }
  first->deleter(first);
  EXPECT_TRUE(has(run.step().text, "a step while 'wpe.weight' is exported (1 live view)")) << run.step().text;
  // What reads only goes on, and so does looking.
  tenon_eval_result eval{};
  eval.struct_size = sizeof eval;
  tenon_error error = no_error();
  EXPECT_EQ(tenon_run_eval(run.get(), &eval, &error), TENON_OK) << error.message;
  EXPECT_EQ(run.save(folder / "out").code, TENON_OK);
  std::thread([second] { second->deleter(second); }).join();
  EXPECT_EQ(run.step().code, TENON_OK);
  EXPECT_EQ(run.info().steps_done, 2);
}

TEST(Views, what_does_not_exist_is_an_error) {
  const Folder folder;
  const Context context;
  OpenRun run(context, tiny(), folder.path());
  DLManagedTensorVersioned* view = nullptr;
  const Outcome none =
      outcome_of([&](tenon_error* e) { return tenon_run_export(run.get(), "wte.wieght", &view, e); });
  EXPECT_EQ(none.code, TENON_E_ARGUMENT);
  EXPECT_TRUE(has(none.text, "no tensor is named 'wte.wieght'")) << none.text;
  EXPECT_EQ(view, nullptr);
}

TEST(Checkpoints, a_resumed_run_goes_on_bit_for_bit) {
  const Folder folder;
  const Context context;
  OpenRun straight(context, tiny(), folder.path());
  const std::vector<double> expected = straight.losses(5);
  OpenRun first(context, tiny(), folder.path());
  first.losses(2);
  ASSERT_EQ(first.save(folder / "out").code, TENON_OK);
  OpenRun second(context, tiny(), folder.path());
  second.losses(1);  // whatever it did before
  const Outcome resumed = second.resume(folder / "out");
  ASSERT_EQ(resumed.code, TENON_OK) << resumed.text;
  EXPECT_EQ(second.info().steps_done, 2);
  EXPECT_EQ(second.tensors(), first.tensors());
  expect_same_bits(second.losses(3), {expected.begin() + 2, expected.end()});
  EXPECT_EQ(second.tensors(), straight.tensors());
  // It continues that run, so its checkpoints may lie beside the first.
  const Outcome saved = second.save(folder / "out");
  EXPECT_EQ(saved.code, TENON_OK) << saved.text;
}

TEST(Checkpoints, another_runs_folder_is_refused_and_both_runs_go_on) {
  const Folder folder;
  const Context context;
  OpenRun first(context, tiny(), folder.path()), second(context, tiny(), folder.path());
  ASSERT_EQ(first.save(folder / "out").code, TENON_OK);
  const Outcome refused = second.save(folder / "out");
  EXPECT_LT(refused.code, 0);
  EXPECT_TRUE(has(refused.text, "error[C010]")) << refused.text;
  EXPECT_EQ(second.step().code, TENON_OK);
  EXPECT_EQ(first.step().code, TENON_OK);
}

TEST(Checkpoints, when_there_is_none_nothing_changes) {
  const Folder folder;
  const Context context;
  OpenRun run(context, tiny(), folder.path());
  const auto before = run.tensors();
  const Outcome none = run.resume(folder / "nowhere");
  EXPECT_EQ(none.code, TENON_E_CHECKPOINT);
  EXPECT_TRUE(has(none.text, "error[C001]")) << none.text;
  EXPECT_EQ(run.tensors(), before);
  EXPECT_EQ(run.step().code, TENON_OK);
}

// The last byte of the only shard: manifest, sizes and headers are still right.
void damage_payload(const std::string& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().filename() == "manifest.json") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-64, std::ios::end);
    const char byte = static_cast<char>(file.get());
    file.seekp(-64, std::ios::end);
    file.put(static_cast<char>(byte ^ 0x40));
  }
}

TEST(Checkpoints, a_damaged_one_is_refused_before_anything_changes_and_an_older_sound_one_is_loaded_instead) {
  const Folder folder;
  std::vector<std::string> lines;
  tenon_options options{};
  options.struct_size = sizeof options;
  options.log_level = TENON_LOG_WARN;
  options.log_user = &lines;
  options.log = [](void* user, uint32_t, const char* source, uint32_t, const char* message) {
    static_cast<std::vector<std::string>*>(user)->push_back(std::string(source) + " " + message);
  };
  const Context context(&options);
  OpenRun run(context, tiny(), folder.path());
  run.losses(1);
  ASSERT_EQ(run.save(folder / "out").code, TENON_OK);
  const auto older = run.tensors();
  run.losses(1);
  ASSERT_EQ(run.save(folder / "out").code, TENON_OK);
  damage_payload(folder / "out/step-2");
  ASSERT_EQ(run.resume(folder / "out").code, TENON_OK);
  EXPECT_EQ(run.info().steps_done, 1);
  EXPECT_EQ(run.tensors(), older);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(has(lines[0], folder / "out/step-2 passed over: the checksum of shard 0")) << lines[0];
  damage_payload(folder / "out/step-1");
  const Outcome none = run.resume(folder / "out");
  EXPECT_EQ(none.code, TENON_E_CHECKPOINT);
  EXPECT_TRUE(has(none.text, "error[C001]")) << none.text;
  EXPECT_EQ(run.tensors(), older);
  EXPECT_EQ(run.step().code, TENON_OK);
}

TEST(State, a_number_that_is_not_finite_is_an_error_from_which_resuming_recovers) {
  struct Case {
    double lr;
    const char* code;
    tenon_code again;  // the step behind the resuming
  };
  const Folder folder;
  const Context context;
  Json recipe = tiny();
  OpenRun good(context, recipe, folder.path());
  good.losses(1);
  ASSERT_EQ(good.save(folder / "out").code, TENON_OK);
  // Parameters that a step leaves finite, and ones that it does not.
  for (const Case& c : {Case{1e30, "error[N001]", TENON_OK}, Case{1e39, "error[N002]", TENON_E_STATE}}) {
    recipe["lr"] = {{"kind", "constant"}, {"value", c.lr}, {"warmup", 0}};
    for (const int ranks : {1, 2}) {
      tenon_run_options options = run_options();
      options.virtual_ranks = ranks;
      OpenRun run(context, recipe, folder.path(), options);
      ASSERT_EQ(run.opened().code, TENON_OK) << run.opened().text;
      Outcome end;
      for (int i = 0; i < 5 && end.code == TENON_OK; ++i) end = run.step();
      EXPECT_EQ(end.code, TENON_E_STATE);
      EXPECT_TRUE(has(end.text, c.code)) << end.text;
      ASSERT_EQ(run.resume(folder / "out").code, TENON_OK);
      const Outcome again = run.step();
      EXPECT_EQ(again.code, c.again) << again.text;
      EXPECT_EQ(has(again.text, c.code), c.again != TENON_OK) << again.text;
    }
  }
}

// -- Threads of the caller --------------------------------------------------------------------------------

TEST(Threads, two_in_one_run_are_told_and_do_not_hang) {
  const Folder folder;
  const Context context;
  Json recipe = tiny();
  recipe["steps"] = 1000000;
  OpenRun run(context, recipe, folder.path());
  ASSERT_EQ(run.opened().code, TENON_OK) << run.opened().text;
  std::atomic<int> refused{0}, done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (refused == 0) {
        const Outcome step = run.step();
        if (step.code == TENON_OK) {
          ++done;
          continue;
        }
        EXPECT_EQ(step.code, TENON_E_STATE);
        EXPECT_TRUE(has(step.text, "error[E028]: tenon_run_step: another call on this run")) << step.text;
        ++refused;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(done, 0);
  EXPECT_EQ(run.step().code, TENON_OK) << "the run is as good as before";
}

// The text of opening a run on a thread with so small a stack.
std::string opened_with_stack(size_t bytes) {
  std::string text = "not started";
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, bytes);
  pthread_t thread{};
  const auto body = [](void* out) -> void* {
    const Folder folder;
    const Context context;
    OpenRun run(context, tiny(), folder.path());
    *static_cast<std::string*>(out) = run.opened().text;
    if (run.opened().code == TENON_OK) {
      const Outcome step = run.step();
      *static_cast<std::string*>(out) = step.text;
    }
    return nullptr;
  };
  if (pthread_create(&thread, &attributes, body, &text) == 0) pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  return text;
}

TEST(Threads, with_too_small_a_stack_are_told) {
  EXPECT_TRUE(has(opened_with_stack(size_t{64} << 10), "error[E029]: the calling thread has "));
  EXPECT_EQ(opened_with_stack(size_t{1} << 20), "") << "a sanitizer takes its share";
}

}  // namespace
}  // namespace tenon::test
