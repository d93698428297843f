// The bounded child, with shell scripts in the helper's place.
#include "host/recipe/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "host/recipe/evaluate.h"

namespace tenon {
namespace {

ChildEnd run_shell(const std::string& script, ChildLimits limits = {}) {
  auto end = run_child({"/bin/sh", "-c", script}, limits);
  EXPECT_TRUE(end.ok()) << end.error().text();
  return end.ok() ? *end : ChildEnd{};
}

TEST(Child, outputs_and_status_come_back) {
  const ChildEnd end = run_shell("echo out; echo err >&2; exit 3");
  EXPECT_EQ(end.cause, ChildEnd::Cause::exited);
  EXPECT_EQ(end.status, 3);
  EXPECT_EQ(end.output, "out\n");
  EXPECT_EQ(end.messages, "err\n");
}

TEST(Child, sees_no_environment_no_input_and_no_other_descriptor) {
  const int leaked = open("/dev/null", O_RDONLY);  // without close-on-exec
  ASSERT_GE(leaked, 0);
  const ChildEnd end = run_shell(
      "/usr/bin/env | /bin/grep -v -E '^(PWD|OLDPWD|SHLVL|_)='; /bin/cat; for f in 3 4 5 6 7 8 9; do "
      "if [ -e /proc/self/fd/$f ]; then echo $f; fi; done");
  close(leaked);
  EXPECT_EQ(end.output, "");
}

TEST(Child, signal_is_told) {
  const ChildEnd end = run_shell("kill -SEGV $$");
  EXPECT_EQ(end.cause, ChildEnd::Cause::signalled);
  EXPECT_EQ(end.status, SIGSEGV);
}

TEST(Child, slow_one_is_killed_and_reaped) {
  ChildLimits limits;
  limits.wall = std::chrono::milliseconds(50);
  EXPECT_EQ(run_shell("exec sleep 100", limits).cause, ChildEnd::Cause::too_slow);
  EXPECT_EQ(run_shell("exec >&- 2>&-; exec sleep 100", limits).cause, ChildEnd::Cause::signalled);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(Child, flood_is_cut_and_its_sender_killed) {
  ChildLimits limits;
  limits.output = 1000;
  const ChildEnd end = run_shell("while :; do echo 0123456789; done", limits);
  EXPECT_EQ(end.cause, ChildEnd::Cause::too_much);
  EXPECT_EQ(end.output.size(), 1000U);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

TEST(Child, messages_are_cut_without_harm) {
  ChildLimits limits;
  limits.messages = 5;
  const ChildEnd end = run_shell("echo 123456789 >&2; echo done", limits);
  EXPECT_EQ(end.messages, "12345");
  EXPECT_EQ(end.output, "done\n");
}

TEST(Child, hosts_other_children_and_handlers_are_left_alone) {
  struct sigaction before {};
  sigaction(SIGCHLD, nullptr, &before);
  const pid_t other = fork();
  if (other == 0) _exit(7);
  run_shell("exit 0");
  int status = 0;
  EXPECT_EQ(waitpid(other, &status, 0), other);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  struct sigaction after {};
  sigaction(SIGCHLD, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST(Child, host_that_ignores_sigchld_still_gets_the_output) {
  struct sigaction before {};
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGCHLD, &ignore, &before);
  const ChildEnd end = run_shell("echo out");
  sigaction(SIGCHLD, &before, nullptr);
  EXPECT_EQ(end.cause, ChildEnd::Cause::unknown);
  EXPECT_EQ(end.output, "out\n");
}

TEST(Child, that_cannot_start_is_an_error) {
  const auto end = run_child({"/no/such/helper"}, {});
  ASSERT_FALSE(end.ok());
  EXPECT_EQ(end.error().text(), "error[R017]: cannot start '/no/such/helper': No such file or directory");
}

// ---- what evaluate_recipe makes of bad helpers ----

std::string message_of_helper(const std::string& script) {
  RecipeRequest request;
  request.helper = "/bin/sh";  // sh -c <script>: the script stands where the library does
  request.plugin = "-c";
  request.library = script;
  request.path = "r.lua";
  request.limits.output = 1000;
  const auto result = evaluate_recipe(request);
  return result.ok() ? "no error" : result.error().text();
}

TEST(Helper, that_answers_nonsense_is_told_from_a_bad_recipe) {
  EXPECT_EQ(message_of_helper("echo; echo oops >&2; exit 3"),
            "error[R017]: the front end -c failed in the loading of its file (exit 3): oops\n  --> r.lua");
  EXPECT_EQ(message_of_helper("echo; kill -ABRT $$"),
            "error[R017]: the front end -c crashed in the loading of its file (signal 6)\n  --> r.lua");
  EXPECT_EQ(message_of_helper("echo; echo; kill -ABRT $$"),
            "error[R017]: the front end -c crashed in init (signal 6)\n  --> r.lua");
  EXPECT_EQ(message_of_helper("echo; echo; echo; kill -ABRT $$"),
            "error[R017]: the front end -c crashed in get_interface (signal 6)\n  --> r.lua");
  EXPECT_EQ(message_of_helper("echo; echo; echo; echo; exit 0"),
            "error[R017]: the front end -c ended in evaluate without an answer\n  --> r.lua");
  EXPECT_EQ(message_of_helper("echo '{\"recipe\": {}}'"),
            "error[R017]: the front end -c: its answer is incomplete\n  --> r.lua");
  EXPECT_EQ(message_of_helper("exit 0"),
            "error[R017]: the front end -c ended before its file was loaded without an answer\n  --> r.lua");
  EXPECT_EQ(message_of_helper("echo '{'").substr(0, 58),
            "error[R017]: the front end -c: its answer is damaged: not ");
  EXPECT_EQ(message_of_helper("echo logged >&2; echo why >&2; exit 4"),
            "error[R017]: the front end -c failed before its file was loaded (exit 4): why\n  --> r.lua");
  EXPECT_EQ(message_of_helper("while :; do echo 0123456789; done"),
            "error[R014]: the resolved recipe is larger than 1000 bytes\n  --> r.lua\n"
            "  fix: use nn.blocks for repeated layers");
}

TEST(Helper, that_dies_after_a_whole_document_is_not_trusted) {
  EXPECT_EQ(
      message_of_helper("echo '{\"recipe\": {}, \"provenance\": {}, \"parameters\": []}'; kill -SEGV $$"),
      "error[R017]: the front end -c crashed in evaluate or deinit (signal 11)\n  --> r.lua");
}

TEST(Helper, is_not_needed_for_a_resolved_recipe) {
  const std::string path = testing::TempDir() + "tenon-resolved-" + std::to_string(getpid()) + ".json";
  FILE* file = fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  fputs("{\"tenon\": 1}", file);
  fclose(file);
  RecipeRequest request;
  request.path = path;
  const auto result = evaluate_recipe(request);
  ASSERT_TRUE(result.ok()) << result.error().text();
  EXPECT_EQ(result->recipe["tenon"], 1);
  request.overrides = {"lr=1"};
  EXPECT_EQ(evaluate_recipe(request).error().cause, "unknown parameter 'lr' on the command line");
  unlink(path.c_str());
  request.overrides.clear();
  EXPECT_EQ(evaluate_recipe(request).error().code, "R015");
}

}  // namespace
}  // namespace tenon
