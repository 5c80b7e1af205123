#include "megatron/cli/launch_supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/exit_codes.h"
#include "megatron/base/format.h"
#include "megatron/base/machine.h"

namespace megatron {
namespace {

/// Whether ranks save and stop after the signal.
bool is_request_to_stop(int signal) {
  return signal == SIGTERM || signal == SIGINT || signal == SIGUSR1;
}

/// Seconds between the failure of a rank and SIGTERM to the others. In this time they can detect
/// the failure themselves and report its cause.
constexpr double kSelfExitSeconds = 2;
/// Seconds after which the launcher reports the failure of a rank of this host to the other hosts,
/// unless a rank has done so.
constexpr double kPostSeconds = 0.5;
/// Seconds for the first launcher to let the ranks save for a host that leaves. Then this launcher
/// stops its ranks, and with them the run.
constexpr double kLeaveTimeoutSeconds = 5;
/// Seconds for a silent launcher of the first host to answer again. Where its connection has ended,
/// the ranks detect that through their own launcher, and have this time to end by themselves.
constexpr double kLostLeaderSeconds = 15;
/// Limit of a wait for events while the agent must be served regularly.
constexpr int kTickMilliseconds = 500;
/// Longest wait for events, after which the wait begins again.
constexpr std::int64_t kLongestWaitMilliseconds = 3'600'000;
/// Time to write the last output after a signal, before it is dropped.
constexpr std::chrono::seconds kDrainGrace{2};

std::chrono::steady_clock::duration seconds(double count) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(count));
}

}  // namespace

RootCausePipe::RootCausePipe() {
  MEGATRON_CHECK(::pipe2(ends_.data(), O_CLOEXEC | O_NONBLOCK) == 0,
                 "pipe: ", std::strerror(errno));
}

RootCausePipe::~RootCausePipe() {
  for (const int end : ends_) ::close(end);
}

std::string RootCausePipe::cause_of(std::int64_t rank) {
  std::array<char, 4096> buffer;
  for (ssize_t count; (count = ::read(ends_[0], buffer.data(), buffer.size())) > 0;)
    text_.append(buffer.data(), static_cast<std::size_t>(count));
  const std::string start = std::to_string(rank) + " ";
  for (std::size_t at = 0, end; (end = text_.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string line = text_.substr(at, end - at);
    if (line.starts_with(start)) return line.substr(start.size());
  }
  return "";
}

void RootCausePipe::clear() {
  cause_of(-1);  // reads what is left
  text_.clear();
}

Supervisor::Supervisor(std::vector<RankProcess> processes, const Limits& limits, const Links& links)
    : processes_(std::move(processes)),
      limits_(limits),
      signals_(links.signals),
      out_(links.out),
      err_(links.err),
      causes_(links.causes),
      agent_(links.agent),
      round_(links.agent.decision().round) {}

LaunchResult Supervisor::run() {
  reap();  // a process that was kept may have died just before it was started again
  while (any_running()) {
    wait_for_events();
    handle_signals();
    reclaim_processes();
    apply_decision();
    check_leader_timeout();
    post_unexplained_failure(/*is_final=*/false);
    terminate_remaining();
  }
  terminate_at_.reset();
  kill_at_.reset();
  post_unexplained_failure(/*is_final=*/true);
  return result();
}

bool Supervisor::any_running() const {
  return std::ranges::any_of(processes_, &RankProcess::is_running);
}

/// Sleeps until a rank writes or ends, a signal arrives, output can be written, or a deadline for
/// termination expires.
void Supervisor::wait_for_events() {
  std::vector<pollfd> events;
  std::vector<std::function<void()>> actions;
  const auto watch = [&](int descriptor, short wanted, std::function<void()> action) {
    events.push_back({descriptor, wanted, 0});
    actions.push_back(std::move(action));
  };
  watch(signals_.descriptor(), POLLIN, nullptr);  // handle_signals() takes them
  watch(agent_.descriptor(), POLLIN, nullptr);    // it is served in any case
  for (OutputQueue* queue : {&out_, &err_}) {
    if (!queue->is_empty()) watch(queue->descriptor(), POLLOUT, [queue] { queue->write_some(); });
  }
  for (const RankProcess& process : processes_) {
    if (process.is_running && process.link.is_open())
      watch(process.link.descriptor(), POLLIN, nullptr);  // reclaim_processes() reads it
    for (RankStream* stream : {process.out.get(), process.err.get()}) {
      if (stream && stream->can_read())
        watch(stream->descriptor(), POLLIN, [stream] { stream->read_some(); });
    }
  }
  ::poll(events.data(), events.size(), wait_milliseconds());
  agent_.serve();
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (events[i].revents != 0 && actions[i]) actions[i]();
  }
}

/// Returns the limit of a wait for events; −1: none.
int Supervisor::wait_milliseconds() const {
  int limit_ms = agent_.needs_ticks() ? kTickMilliseconds : -1;
  for (const auto& deadline : {terminate_at_, kill_at_, post_at_}) {
    if (!deadline) continue;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()).count();
    const int wait_ms =
        static_cast<int>(std::clamp<std::int64_t>(left, 0, kLongestWaitMilliseconds));
    limit_ms = limit_ms < 0 ? wait_ms : std::min(limit_ms, wait_ms);
  }
  return limit_ms;
}

void Supervisor::handle_signals() {
  while (const auto signal = signals_.take()) {
    if (*signal == SIGCHLD) {
      reap();
    } else if (is_request_to_stop(*signal) && !is_leaving_ && agent_.leave()) {
      is_leaving_ = true;
      leave_deadline_ = Clock::now() + seconds(kLeaveTimeoutSeconds);
      err_.add("megatron launch: this host leaves the run; a second signal stops the whole run\n");
    } else {
      // SIGUSR2 makes the ranks dump their calls; unless it is their --exit-signal, they continue.
      if (*signal != SIGUSR2) {
        stop_requested_ = true;
        failure_.record_signal(*signal);
      }
      signal_all(*signal);
    }
  }
}

/// Stops or ends the ranks when their round is to end.
void Supervisor::apply_decision() {
  const Decision& decision = agent_.decision();
  if (decision.round != round_) return end_ranks("the run continues without this host");
  if (decision.kind == Decision::Kind::abort) {
    if (!terminate_at_ && !kill_at_ && !is_ending_) stopped_rank_ = stopped_rank();
    return end_ranks("another host has failed, and these ranks have not ended");
  }
  if (decision.kind == Decision::Kind::end) return end_ranks("the run has ended");
  if (decision.kind == Decision::Kind::run && leave_deadline_ && Clock::now() >= *leave_deadline_) {
    // The first launcher may be lost. The host may have little time left.
    leave_deadline_.reset();
    stop_requested_ = true;
    failure_.record_signal(SIGTERM);
    return signal_all(SIGTERM);
  }
  if (decision.kind != Decision::Kind::stop || std::exchange(is_stopping_, true)) return;
  err_.add("megatron launch: " + decision.reason + ": the ranks save and stop\n");
  failure_.record_signal(SIGTERM);
  signal_all(SIGTERM);
}

/// Ends ranks for a reason that is not their own.
void Supervisor::end_ranks(const std::string& reason) {
  if (terminate_at_ || kill_at_ || std::exchange(is_ending_, true)) return;
  if (failure_.kind() == FirstFailure::Kind::none) end_reason_ = reason;
  err_.add("megatron launch: ends the ranks of this host: " + reason + "\n");
  terminate_at_ = Clock::now();
}

/// Ends the ranks if the first launcher stays lost: failures of other hosts would not reach them.
void Supervisor::check_leader_timeout() {
  const std::string reason = agent_.lost_reason();
  if (reason.empty()) {
    if (std::exchange(leader_lost_at_, std::nullopt) && !is_ending_)
      err_.add("megatron launch: the launcher of the first host answers again\n");
    return;
  }
  if (!leader_lost_at_) {
    leader_lost_at_ = Clock::now();
    err_.add("megatron launch: warning: the launcher of the first host is lost: " + reason +
             format("; the ranks are ended in %.0f s\n", kLostLeaderSeconds));
  }
  if (Clock::now() >= *leader_lost_at_ + seconds(kLostLeaderSeconds))
    end_ranks("the launcher of the first host is lost");
}

/// A rank that was killed reports nothing, and the ranks of other hosts need not wait for it.
void Supervisor::post_unexplained_failure(bool is_final) {
  if (!post_at_ || (!is_final && Clock::now() < *post_at_)) return;
  post_at_.reset();
  const RankEnd& end = failure_.end();
  agent_.post_failure(round_, {end.rank, host_name(), 1,
                               "error: rank " + std::to_string(end.rank) + " on " + host_name() +
                                   " " + describe_end(end.status),
                               true});
}

void Supervisor::reap() {
  std::vector<RankEnd> ended;
  int status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0;) {
    const auto process = std::ranges::find(processes_, pid, &RankProcess::pid);
    if (process == processes_.end() || !process->is_running) {
      if (process != processes_.end()) process->is_kept = false;  // it died while it waited
      continue;
    }
    if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
      report_stop(*process, status);
      continue;
    }
    process->is_running = false;
    ended.push_back({process->rank, status, causes_.cause_of(process->rank)});
  }
  record_ends(std::move(ended));
}

/// Keeps the processes of ranks that ended because of another one, or on request. One that has
/// failed itself may be broken, and ends.
void Supervisor::reclaim_processes() {
  std::vector<RankEnd> ended;
  for (RankProcess& process : processes_) {
    if (!process.is_running || !process.link.is_open()) continue;
    const auto code = process.link.offered_code();
    if (!code) continue;
    std::string cause = causes_.cause_of(process.rank);
    const bool is_reusable = is_code_of_stop(*code) || !cause.empty();
    if (!is_reusable || process.num_starts >= limits_.max_starts) {
      process.link.close();
      continue;
    }
    process.is_running = false;
    process.is_kept = true;
    ended.push_back({process.rank, W_EXITCODE(*code, 0), std::move(cause)});
  }
  record_ends(std::move(ended));
}

void Supervisor::record_ends(std::vector<RankEnd> ended) {
  const FirstFailure::Kind before = failure_.kind();
  if (!failure_.record(std::move(ended))) return;
  // A rank that failed itself did so before those that ended because of it.
  if (before != FirstFailure::Kind::consequence) failed_at_ = Clock::now();
  end_after_failure();
}

std::vector<RankProcess> Supervisor::take_kept() {
  std::vector<RankProcess> kept;
  for (RankProcess& process : processes_) {
    if (process.is_kept) kept.push_back(std::move(process));
  }
  return kept;
}

/// Reports that a rank is stopped or continues. All other ranks wait for a stopped rank and cannot
/// report the reason.
void Supervisor::report_stop(RankProcess& process, int status) {
  process.stop_signal = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
  const std::string what = process.stop_signal != 0
                               ? "is stopped by " + signal_text(process.stop_signal) +
                                     ": the other ranks wait for it (continue it with kill -CONT " +
                                     std::to_string(process.pid) + ")"
                               : "continues";
  err_.add("megatron launch: rank " + std::to_string(process.rank) + " " + what + "\n");
}

std::optional<Supervisor::StoppedRank> Supervisor::stopped_rank() const {
  const auto stopped = std::ranges::find_if(
      processes_, [](const RankProcess& one) { return one.is_running && one.stop_signal != 0; });
  if (stopped == processes_.end()) return std::nullopt;
  return StoppedRank{stopped->rank, stopped->stop_signal};
}

/// Ranks that stop on request are saving and exit by themselves; after a failure they are ended.
void Supervisor::end_after_failure() {
  if (failure_.kind() == FirstFailure::Kind::stopped_on_request) return;
  if (!is_ending_)
    stopped_rank_ =
        failure_.kind() == FirstFailure::Kind::consequence ? stopped_rank() : std::nullopt;
  if (!kill_at_ && !terminate_at_)
    terminate_at_ = Clock::now() + seconds(std::min(kSelfExitSeconds, limits_.grace_s));
  if (failure_.kind() == FirstFailure::Kind::own && end_reason_.empty())
    post_at_ = Clock::now() + seconds(kPostSeconds);
}

LaunchResult Supervisor::result() {
  LaunchResult result{.stop_requested = stop_requested_, .is_leaving = is_leaving_};
  if (failure_.kind() == FirstFailure::Kind::none) return result;
  const RankEnd& end = failure_.end();
  result.code = exit_code_of(end.status);
  // A rank that does not handle signals yet ends as one that has saved and stopped.
  if (stop_requested_ && WIFSIGNALED(end.status))
    result.code = exit_code_after(WTERMSIG(end.status));
  result.rank = end.rank;
  result.description = describe_end(end.status);
  result.cause = end.cause.empty() ? end_reason_ : "another rank failed: " + end.cause;
  result.stopped_on_request = failure_.kind() == FirstFailure::Kind::stopped_on_request;
  // The other signals are sent by the user, to the ranks themselves.
  if (result.stopped_on_request && result.code != 128 + SIGTERM) result.stop_requested = true;
  result.since_failure =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - *failed_at_);
  if (stopped_rank_) {
    result.rank = stopped_rank_->rank;
    result.cause.clear();
    result.description =
        "was stopped by " + signal_text(stopped_rank_->signal) + " and did not continue";
    if (is_ending_) {
      result.code = 1;  // as of ranks that waited for it elsewhere; this launcher has ended its own
    } else {
      result.description += "; rank " + std::to_string(end.rank) + ", which waited for it, " +
                            describe_end(end.status);
    }
  }
  return result;
}

void Supervisor::terminate_remaining() {
  const auto now = Clock::now();
  if (terminate_at_ && now >= *terminate_at_) {
    failure_.record_termination();
    signal_all(SIGTERM);
    // A stopped rank handles no signal but this one.
    for (const RankProcess& process : processes_)
      if (process.is_running && process.stop_signal != 0) ::kill(process.pid, SIGKILL);
    kill_at_ = now + seconds(limits_.grace_s);
    terminate_at_.reset();
  }
  if (kill_at_ && now >= *kill_at_) {
    signal_all(SIGKILL);
    kill_at_.reset();
  }
}

void Supervisor::signal_all(int signal) {
  for (const RankProcess& process : processes_) {
    if (process.is_running) ::kill(process.pid, signal);
  }
}

bool Supervisor::has_output() const {
  return !out_.is_empty() || !err_.is_empty() ||
         std::ranges::any_of(processes_, [](const RankProcess& process) {
           // The pipes of a process that is kept have no end.
           const auto is_unread = [&](const RankStream* stream) {
             return stream && (process.is_kept ? stream->has_text() : stream->is_open());
           };
           return is_unread(process.out.get()) || is_unread(process.err.get());
         });
}

std::vector<std::string> Supervisor::finish_output(int& signal) {
  std::optional<Clock::time_point> drop_at;
  while (has_output() && !(drop_at && Clock::now() >= *drop_at)) {
    wait_for_events();
    while (const auto taken = signals_.take()) {
      if (*taken == SIGCHLD || *taken == SIGUSR2) continue;
      signal = *taken;
      if (!drop_at) drop_at = kill_at_ = Clock::now() + kDrainGrace;
    }
  }
  if (failure_.kind() == FirstFailure::Kind::none || stopped_rank_) return {};
  const auto failed = std::ranges::find(processes_, failure_.end().rank, &RankProcess::rank);
  if (!failed->err) return {};
  return {failed->err->last_lines().begin(), failed->err->last_lines().end()};
}

}  // namespace megatron
