// Ranks as processes: this executable again, one child per rank, with what they print.
#pragma once

#include <string>
#include <vector>

namespace tenon::test {

struct ChildResult {
  int exit_status = -1;  // -1: ended by a signal or by us
  std::string output;
};

// Starts `world` children as `/proc/self/exe --rank <scenario> <rank> <world> <port> <secret> <tls>
// <memory>`, waits for all of them and returns in rank order. Whoever still runs after `seconds` is killed
// and says so.
std::vector<ChildResult> run_ranks(const std::string& scenario, int world, const std::string& tls,
                                   bool reachable, double seconds);

// If this process is such a child: runs its scenario and returns its exit status, else -1.
int child_main(int argc, char** argv, const std::string& plugin_file);

}  // namespace tenon::test
