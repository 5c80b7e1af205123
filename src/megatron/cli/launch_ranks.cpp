#include "megatron/cli/launch_ranks.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <tuple>
#include <utility>

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
      start.restart_count == 0, *start.standard_error);
}

Variables variables_of(const RankStartOptions& start, const RankProcess& process) {
  const auto text = [](std::int64_t number) { return std::to_string(number); };
  const std::int64_t port = start.plan.master_port == 0 ? start.store_port : start.plan.master_port;
  return {{"RANK", text(process.rank)},
          {"WORLD_SIZE", text(start.num_nodes * start.plan.ranks_per_node)},
          {"LOCAL_RANK", text(process.local_rank)},
          {"LOCAL_WORLD_SIZE", text(start.plan.ranks_per_node)},
          {"GROUP_RANK", text(start.node_rank)},
          {"GROUP_WORLD_SIZE", text(start.num_nodes)},
          {"MASTER_ADDR", start.plan.master_addr},
          {"MASTER_PORT", text(port)},
          {kLaunchStoreAddrVariable, start.store_addr},
          {kLaunchStorePortVariable, text(start.store_port)},
          {kLaunchOwnAddrVariable, start.own_addr},
          {kLaunchRestartVariable, text(start.restart_count)},
          {kLaunchMaxRestartsVariable, text(start.plan.max_restarts)},
          {kLaunchCauseVariable, text(start.root_cause_pipe)}};
}

void set_environment(const Variables& variables) {
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
}

void redirect(int descriptor, int target) {
  if (descriptor < 0) return;
  ::dup2(descriptor, target);
  ::close(descriptor);
}

/// Closes what an exec would close, except `needed`: the launcher's sockets, the pipes of the other
/// ranks. One that stayed open in a rank would hide from its other side that the launcher has
/// closed it.
void close_launchers_descriptors(const std::array<int, 2>& needed) {
  std::vector<int> open;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd", error))
    open.push_back(std::stoi(entry.path().filename()));
  for (const int descriptor : open) {
    const int flags = ::fcntl(descriptor, F_GETFD);
    if (std::ranges::count(needed, descriptor) == 0 && flags >= 0 && (flags & FD_CLOEXEC) != 0)
      ::close(descriptor);
  }
}

/// Runs the child process. Does not return.
[[noreturn]] void become_rank(const RankStartOptions& start, const RankProcess& process,
                              const Descriptor& link, pid_t launcher) {
  ::setpgid(0, 0);  // Ctrl-C reaches only the launcher, which forwards the signal once
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(1);
  std::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &start.signal_mask, nullptr);
  redirect(::open("/dev/null", O_RDONLY), STDIN_FILENO);
  for (const char* name :
       {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT"})
    ::unsetenv(name);
  ::unsetenv(kLaunchLinkVariable);  // of a launcher around this one
  if (link.is_open()) set_environment({{kLaunchLinkVariable, std::to_string(link.number())}});
  set_environment(variables_of(start, process));
  std::signal(SIGUSR2, SIG_IGN);  // until the rank can answer
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
         start.plan.output.shown_ranks.empty() && is_terminal(descriptor);
}

/// Returns where the output of a rank goes.
RankStream::Targets targets_of(const RankStartOptions& start, const RankProcess& process,
                               OutputStream stream, const std::shared_ptr<RankLog>& log) {
  const RankOutput& output = start.plan.output;
  OutputQueue* const queue =
      stream == OutputStream::out ? start.standard_output : start.standard_error;
  return {output.shows(process.local_rank, stream) ? queue : nullptr,
          output.logs(process.local_rank, stream) ? log : nullptr};
}

std::unique_ptr<RankStream> stream_of(const RankPipe& pipe, const std::string& prefix,
                                      const RankStream::Targets& targets) {
  if (pipe.read < 0) return nullptr;
  ::close(pipe.write);
  return std::make_unique<RankStream>(pipe.read, prefix, targets);
}

std::int64_t rank_of(const RankStartOptions& start, std::int64_t local_rank) {
  return start.node_rank * start.plan.ranks_per_node + local_rank;
}

RankProcess start_rank(const RankStartOptions& start, std::int64_t local_rank) {
  RankProcess process{.rank = rank_of(start, local_rank), .local_rank = local_rank};
  const RankPipe out = open_rank_pipe(is_direct(start, process.rank, STDOUT_FILENO)),
                 err = open_rank_pipe(is_direct(start, process.rank, STDERR_FILENO));
  const auto log = open_log(start, process.rank);
  Descriptor far_end;
  if (start.keeps_processes) std::tie(process.link, far_end) = RankLink::open();
  const pid_t launcher = ::getpid();
  process.pid = ::fork();
  if (process.pid < 0) fail("start rank " + std::to_string(process.rank), errno);
  if (process.pid == 0) {
    redirect(out.write, STDOUT_FILENO);
    redirect(err.write, STDERR_FILENO);
    close_launchers_descriptors({start.root_cause_pipe, far_end.number()});
    become_rank(start, process, far_end, launcher);
  }
  process.is_running = true;
  const std::string prefix = prefix_of(start, process.rank);
  process.out = stream_of(out, prefix, targets_of(start, process, OutputStream::out, log));
  process.err = stream_of(err, prefix, targets_of(start, process, OutputStream::err, log));
  return process;
}

/// Starts the rank in a kept process. Returns false if that has ended, or has the terminal of rank
/// 0 and is to be another rank.
bool start_again(const RankStartOptions& start, RankProcess& process) {
  process.rank = rank_of(start, process.local_rank);
  if (is_direct(start, process.rank, STDOUT_FILENO) != !process.out ||
      is_direct(start, process.rank, STDERR_FILENO) != !process.err)
    return false;
  const auto log = open_log(start, process.rank);
  const std::string prefix = prefix_of(start, process.rank);
  for (const auto& [stream, open] : {std::pair(OutputStream::out, process.out.get()),
                                     std::pair(OutputStream::err, process.err.get())})
    if (open != nullptr) open->redirect(prefix, targets_of(start, process, stream, log));
  if (!process.link.start_again(variables_of(start, process))) return false;
  process.is_kept = false;
  process.is_running = true;
  ++process.num_starts;
  return true;
}

}  // namespace

std::vector<RankProcess> start_ranks(const RankStartOptions& start, std::vector<RankProcess> kept) {
  std::vector<RankProcess> processes;
  for (std::int64_t local_rank = 0; local_rank < start.plan.ranks_per_node; ++local_rank) {
    const auto found = std::ranges::find(kept, local_rank, &RankProcess::local_rank);
    if (found != kept.end() && start_again(start, *found)) {
      processes.push_back(std::move(*found));
      kept.erase(found);
    } else {
      processes.push_back(start_rank(start, local_rank));
    }
  }
  end_kept(std::move(kept));
  return processes;
}

void end_kept(std::vector<RankProcess> kept) {
  for (RankProcess& process : kept) {
    process.link.close();
    ::kill(process.pid, SIGKILL);
    ::waitpid(process.pid, nullptr, 0);
  }
}

}  // namespace megatron
