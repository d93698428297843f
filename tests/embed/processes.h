// Two ranks, each a process of its own, that meet over comm/ucx.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <functional>
#include <sstream>

#include "support.h"

namespace tenon::test {

inline bool have_ucx() { return fs::exists(std::string(TENON_PLUGIN_DIR) + "/libtenon-comm-ucx.so"); }

// Of the loopback, on which nobody listens now.
inline uint32_t free_port() {
  const int one = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(one, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(one, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(one);
  return ntohs(address.sin_port);
}

// What a rank does with the options of its process; returns what of that went wrong, "": nothing.
using RankBody = std::function<std::string(int rank, tenon_run_options options)>;

inline pid_t start_rank(int rank, uint32_t port, const std::string& said, const RankBody& body) {
  std::fflush(stdout);  // or the child would print it again
  const pid_t pid = fork();
  if (pid != 0) return pid;
  const std::array<uint8_t, 32> secret{1, 2, 3};
  tenon_run_options options = run_options();
  options.rank = rank;
  options.world = 2;
  options.port = port;
  options.secret = secret.data();
  options.timeout_ns = 60'000'000'000;
  const std::string wrong = body(rank, options);
  std::ofstream(said) << wrong;
  std::fflush(stdout);
  _exit(wrong.empty() ? 0 : 1);  // and not by the tests' own exit
}

// Runs both to their ends.
inline void expect_of_two_processes(const Folder& folder, const RankBody& body) {
  const uint32_t port = free_port();
  const std::array said{folder / "said0", folder / "said1"};
  std::array<pid_t, 2> ranks{};
  for (int rank : {0, 1})
    ranks[static_cast<size_t>(rank)] = start_rank(rank, port, said[static_cast<size_t>(rank)], body);
  for (size_t rank : {0, 1}) {
    int status = 0;
    waitpid(ranks[rank], &status, 0);
    std::stringstream wrong;
    wrong << std::ifstream(said[rank]).rdbuf();
    EXPECT_EQ(status, 0) << "rank " << rank << ": " << wrong.str();
  }
}

}  // namespace tenon::test
