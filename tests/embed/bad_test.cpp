// Plugins that are bad on purpose below an embedding program: what a call can refuse ends no process.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "support.h"

namespace tenon::test {
namespace {

struct Subject {
  std::string id;
  std::vector<std::string> slots;  // that answer with a code, or give an object
};

const std::vector<Subject> kSubjects{
    {"kernels/cpu", {"init", "get_interface", "open", "describe", "prepare", "enqueue", "alloc"}},
    {"data/text", {"init", "get_interface", "open", "describe", "read"}},
    {"optimizer/adamw", {"init", "get_interface", "open", "describe", "step"}},
    {"comm/local",
     {"init", "get_interface", "domain_open", "alloc", "group_open", "prepare", "start", "wait_host"}},
    {"parallel/data", {"init", "get_interface", "run"}},
};

bool gives_object(const std::string& slot) {
  return slot == "get_interface" || slot.ends_with("open") || slot == "alloc" || slot == "prepare";
}

std::vector<std::string> deeds_of(const std::string& slot) {
  std::vector<std::string> out;
  if (gives_object(slot)) out.push_back("null");
  if (slot != "get_interface") out.insert(out.end(), {"code", "pending", "unknown", "text"});
  if (slot == "read") out.insert(out.end(), {"limit", "unwritten", "past"});
  return out;
}

std::string file_of(const std::string& id) {
  std::string out = id;
  std::ranges::replace(out, '/', '-');
  return "libtenon-" + out + ".so";
}

// What the first call that fails says; "" if none does. Everything is closed in any case.
std::string run_all(const Folder& folder) {
  const std::string bad = folder / "bad";
  const char* const folders = bad.c_str();
  const tenon_options options{sizeof options, TENON_LOG_ERROR, nullptr, nullptr, &folders, 1, 0,
                              nullptr,        nullptr};
  const Context context(&options);
  tenon_run_options ranks = run_options();
  ranks.virtual_ranks = 2;
  OpenRun run(context, tiny(), folder.path(), ranks);
  if (run.opened().code < 0) return run.opened().text;
  for (int i = 0; i < 2; ++i) {
    if (const Outcome step = run.step(); step.code < 0) return step.text;
  }
  tenon_eval_result result{};
  result.struct_size = sizeof result;
  const Outcome eval = outcome_of([&](tenon_error* e) { return tenon_run_eval(run.get(), &result, e); });
  if (eval.code < 0) return eval.text;
  return run.save(folder / "save").text;
}

// In a process of its own, for a library is never unloaded.
std::string text_of_child(const Folder& folder, int& status) {
  int fds[2];
  if (pipe(fds) != 0) return "pipe";
  const bool failed_before = testing::Test::HasFailure();
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = run_all(folder);
    const bool told = write(fds[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(told && (failed_before || !testing::Test::HasFailure()) ? 7 : 1);
  }
  close(fds[1]);
  std::string text;
  char buffer[1024];
  for (ssize_t n; (n = read(fds[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
  close(fds[0]);
  waitpid(child, &status, 0);
  return text;
}

struct Result {
  std::string text;
  bool ended_well = false, marked = false;
};

Result result_of(const std::string& id, const std::string& slot, const std::string& deed) {
  const Folder folder;
  fs::create_directory(folder / "bad");
  fs::create_symlink(TENON_BAD_PLUGIN, folder / ("bad/" + file_of(id)));
  std::ofstream(folder / "bad/bad") << TENON_PLUGIN_DIR << "\n"
                                    << slot << "\n"
                                    << deed << "\n"
                                    << (folder / "mark");
  Result out;
  int status = 0;
  out.text = text_of_child(folder, status);
  out.ended_well = WIFEXITED(status) && WEXITSTATUS(status) == 7;
  out.marked = fs::exists(folder / "mark");
  return out;
}

TEST(Bad, plugins_below_an_embedding_program_are_errors_that_name_them) {
  for (const Subject& subject : kSubjects) {
    for (const std::string& slot : subject.slots) {
      for (const std::string& deed : deeds_of(slot)) {
        SCOPED_TRACE(subject.id + ", " + slot + ": " + deed);
        const Result result = result_of(subject.id, slot, deed);
        EXPECT_TRUE(result.marked);
        EXPECT_TRUE(result.ended_well) << result.text;
        // init has no id to its place, but a path
        const bool named = has(result.text, subject.id) || has(result.text, file_of(subject.id));
        EXPECT_TRUE(named) << result.text;
      }
    }
  }
}

TEST(Bad, a_wrapper_that_is_good_trains) {
  for (const Subject& subject : kSubjects) {
    const Result result = result_of(subject.id, "none", "none");
    EXPECT_TRUE(result.ended_well) << subject.id;
    EXPECT_EQ(result.text, "") << subject.id;
  }
}

}  // namespace
}  // namespace tenon::test
