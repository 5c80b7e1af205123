#include "megatron/cli/launch_ranks.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/terminal.h"
#include "megatron/cli/command.h"

namespace megatron {
namespace {

[[noreturn]] void fail(const std::string& action, int code) {
  throw UserError({"cannot " + action, std::strerror(code),
                   "start fewer ranks, or raise the limits of this user (ulimit -a)"});
}

/// One stream of a rank: a pipe to the launcher, or the launcher's terminal (`write` is −1), so
/// that progress bars work.
struct RankPipe {
  int read = -1, write = -1;
};

RankPipe open_rank_pipe(bool is_direct) {
  if (is_direct) return {};
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("open a pipe for a rank", errno);
  return {ends[0], ends[1]};
}

/// Opens the log file for stdout and stderr of a rank. After a restart it is appended to.
std::shared_ptr<RankLog> open_log(const RankStartOptions& start, std::int64_t rank) {
  if (start.plan.log_dir.empty()) return nullptr;
  create_directories(start.plan.log_dir);
  return std::make_shared<RankLog>(
      fs::path(start.plan.log_dir) / ("rank_" + std::to_string(rank) + ".log"),
      start.restart_count == 0);
}

void set_variable(const char* name, std::int64_t value) {
  ::setenv(name, std::to_string(value).c_str(), 1);
}

void set_environment(const RankStartOptions& start, const RankProcess& process) {
  for (const char* name : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE",
                           "TORCHELASTIC_RESTART_COUNT", kLaunchCauseVariable})
    ::unsetenv(name);
  set_variable("RANK", process.rank);
  set_variable("WORLD_SIZE", start.num_nodes * start.plan.ranks_per_node);
  set_variable("LOCAL_RANK", process.local_rank);
  set_variable("LOCAL_WORLD_SIZE", start.plan.ranks_per_node);
  set_variable("GROUP_RANK", start.node_rank);
  set_variable("GROUP_WORLD_SIZE", start.num_nodes);
  ::setenv("MASTER_ADDR", start.plan.master_addr.c_str(), 1);
  set_variable("MASTER_PORT",
               start.plan.master_port == 0 ? start.store_port : start.plan.master_port);
  ::setenv(kLaunchStoreAddrVariable, start.store_addr.c_str(), 1);
  set_variable(kLaunchStorePortVariable, start.store_port);
  ::setenv(kLaunchOwnAddrVariable, start.own_addr.c_str(), 1);
  set_variable(kLaunchRestartVariable, start.restart_count);
  set_variable(kLaunchMaxRestartsVariable, start.plan.max_restarts);
  if (start.root_cause_pipe >= 0) set_variable(kLaunchCauseVariable, start.root_cause_pipe);
}

void redirect(int descriptor, int target) {
  if (descriptor < 0) return;
  ::dup2(descriptor, target);
  ::close(descriptor);
}

/// Closes what an exec would close, except `kept`: the launcher's sockets, the pipes of the other
/// ranks. One that stayed open in a rank would hide from its other side that the launcher has
/// closed it.
void close_launchers_descriptors(int kept) {
  std::vector<int> open;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd", error))
    open.push_back(std::stoi(entry.path().filename()));
  for (const int descriptor : open) {
    const int flags = ::fcntl(descriptor, F_GETFD);
    if (descriptor != kept && flags >= 0 && (flags & FD_CLOEXEC) != 0) ::close(descriptor);
  }
}

/// Runs the child process. Does not return.
[[noreturn]] void become_rank(const RankStartOptions& start, const RankProcess& process,
                              pid_t launcher) {
  ::setpgid(0, 0);  // Ctrl-C reaches only the launcher, which forwards the signal once
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(1);
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGUSR2, SIG_IGN);  // until the rank can answer
  ::sigprocmask(SIG_SETMASK, &start.signal_mask, nullptr);
  redirect(::open("/dev/null", O_RDONLY), STDIN_FILENO);
  set_environment(start, process);
  const int code = dispatch(start.plan.command);
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(code);
}

std::string prefix_of(const RankStartOptions& start, std::int64_t rank) {
  const bool is_prefixed = start.plan.prefix == LinePrefix::all ||
                           (start.plan.prefix == LinePrefix::others && rank != 0);
  return is_prefixed ? "[rank " + std::to_string(rank) + "] " : "";
}

/// Returns whether rank 0 can write to the terminal directly: its lines need no prefix and no file.
bool is_direct(const RankStartOptions& start, std::int64_t rank, int descriptor) {
  return rank == 0 && start.plan.prefix != LinePrefix::all && start.plan.log_dir.empty() &&
         is_terminal(descriptor);
}

std::unique_ptr<RankStream> stream_of(const RankPipe& pipe, const std::string& prefix,
                                      const RankStream::Targets& targets) {
  if (pipe.read < 0) return nullptr;
  ::close(pipe.write);
  return std::make_unique<RankStream>(pipe.read, prefix, targets);
}

RankProcess start_rank(const RankStartOptions& start, std::int64_t local_rank) {
  RankProcess process{.rank = start.node_rank * start.plan.ranks_per_node + local_rank,
                      .local_rank = local_rank};
  const RankPipe out = open_rank_pipe(is_direct(start, process.rank, STDOUT_FILENO)),
                 err = open_rank_pipe(is_direct(start, process.rank, STDERR_FILENO));
  const auto log = open_log(start, process.rank);
  const pid_t launcher = ::getpid();
  process.pid = ::fork();
  if (process.pid < 0) fail("start rank " + std::to_string(process.rank), errno);
  if (process.pid == 0) {
    redirect(out.write, STDOUT_FILENO);
    redirect(err.write, STDERR_FILENO);
    close_launchers_descriptors(start.root_cause_pipe);
    become_rank(start, process, launcher);
  }
  process.is_running = true;
  const std::string prefix = prefix_of(start, process.rank);
  process.out = stream_of(out, prefix, {start.standard_output, log});
  process.err = stream_of(err, prefix, {start.standard_error, log});
  return process;
}

}  // namespace

std::vector<RankProcess> start_ranks(const RankStartOptions& start) {
  std::vector<RankProcess> processes;
  for (std::int64_t local_rank = 0; local_rank < start.plan.ranks_per_node; ++local_rank) {
    processes.push_back(start_rank(start, local_rank));
  }
  return processes;
}

}  // namespace megatron
