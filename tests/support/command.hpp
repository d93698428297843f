// Runs a program as a user would, in a process group of its own, with a deadline for everything, and finds
// what it leaves behind: processes, files in /dev/shm, SysV segments.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <set>
#include <string>
#include <vector>

namespace tenon::test {

// Seconds until a command counts as hanging: half of what CTest gives a whole test, so that a slow build on a
// loaded machine does not exceed them, and yet the test itself says what hangs.
constexpr double kPatience = 1800;

struct CommandResult {
  int code = -1;           // exit code; -1: ended by a signal
  int signal = 0;          // that ended it
  bool timed_out = false;  // the deadline passed: killed by us
  std::string out, err;
};

struct ProcessInfo {
  pid_t pid = 0;
  pid_t group = 0;
  char state = 'Z';
  std::vector<std::string> arguments;
};

// All processes that run now (no zombies).
std::vector<ProcessInfo> processes();

class Command {
 public:
  // Starts `argv` in `folder`; `environment` is added to ours ("NAME=value").
  Command(std::vector<std::string> argv, const std::string& folder,
          const std::vector<std::string>& environment = {});
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  ~Command();

  pid_t pid() const { return pid_; }
  // To the command alone, or to its group, as a terminal does on Ctrl-C.
  void signal(int number) const { kill(pid_, number); }
  void signal_group(int number) const { kill(-pid_, number); }

  // Processes of the command's group, itself included while it runs.
  std::vector<ProcessInfo> group() const;

  // Reads until standard output holds `text` `times` times. False: it ended or the deadline passed before.
  bool wait_for(const std::string& text, double seconds, int times = 1);

  // Waits for the end and reads all output. After the deadline the whole group is killed.
  CommandResult finish(double seconds);

 private:
  static std::chrono::steady_clock::time_point deadline_in(double seconds);
  static int count(const std::string& in, const std::string& text);
  static void close_fd(int& fd);

  bool reap();

  // True if something was read.
  bool read_some(int milliseconds);

  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;
  bool ended_ = false;
  CommandResult result_;
};

// Made before a command, asked after it. Others may use shared memory at the same time: only what is new, and
// what no living process maps, counts.
class Leftovers {
 public:
  Leftovers() : files_(shared_files()), segments_(idle_segments()) {}

  // What the command left, one line each; empty if nothing is left within `seconds`.
  std::string after(const Command& command, double seconds = 5) const;

 private:
  static std::set<std::string> shared_files();
  // Ids of SysV segments that nobody is attached to.
  static std::set<std::string> idle_segments();
  static bool is_mapped(const std::string& file);
  std::string now(const Command& command) const;

  std::set<std::string> files_, segments_;
};

}  // namespace tenon::test
