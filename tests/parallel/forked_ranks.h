// Runs ranks as forked processes of a test and records their stderr and exit codes.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "megatron/base/listening_socket.h"
#include "megatron/config/launch_environment.h"

namespace megatron {

struct ForkedRank {
  int code = -1;  ///< 128 + signal when a signal killed the process.
  std::string errors;
  double seconds = 0;
};

inline LaunchEnvironment environment_of(std::int64_t rank, std::int64_t world_size,
                                        std::int64_t port) {
  return {.rank = rank,
          .world_size = world_size,
          .local_rank = rank,
          .local_world_size = world_size,
          .master_addr = "127.0.0.1",
          .master_port = port,
          .source = "a test"};
}

/// Returns a port that was free a moment ago.
inline std::int64_t free_port() {
  return ListeningSocket({.port = 0, .loopback_only = true}).port();
}

/// Runs `body` in one process per rank. A process that takes longer than `limit_s` is killed.
inline std::vector<ForkedRank> fork_ranks(std::int64_t world_size,
                                          const std::function<int(std::int64_t rank)>& body,
                                          unsigned limit_s = 30) {
  struct Child {
    pid_t pid;
    int errors;
  };
  std::vector<Child> children;
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t rank = 0; rank < world_size; ++rank) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) std::abort();
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(limit_s);
      ::dup2(ends[1], STDERR_FILENO);
      ::close(ends[0]);
      ::close(ends[1]);
      for (const Child& other : children) ::close(other.errors);
      const int code = body(rank);
      std::fflush(nullptr);
      ::_exit(code);
    }
    ::close(ends[1]);
    children.push_back({pid, ends[0]});
  }
  std::vector<ForkedRank> ranks;
  for (const Child& child : children) {
    ForkedRank rank;
    std::array<char, 4096> buffer{};
    for (ssize_t count; (count = ::read(child.errors, buffer.data(), buffer.size())) > 0;)
      rank.errors.append(buffer.data(), static_cast<std::size_t>(count));
    ::close(child.errors);
    int status = 0;
    ::waitpid(child.pid, &status, 0);
    rank.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    rank.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace megatron
