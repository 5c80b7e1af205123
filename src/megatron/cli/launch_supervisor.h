// Supervises the ranks of one start: forwards output and signals, and terminates all ranks if one
// fails.
#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/cli/launch_ranks.h"
#include "megatron/cli/signal_queue.h"
#include "megatron/control/agent.h"
#include "megatron/control/first_failure.h"

namespace megatron {

/// A pipe on which ranks report that another rank made them fail.
class RootCausePipe {
 public:
  RootCausePipe();
  RootCausePipe(const RootCausePipe&) = delete;
  RootCausePipe& operator=(const RootCausePipe&) = delete;
  ~RootCausePipe();
  int write_end() const { return ends_[1]; }
  /// Returns the cause that the rank reported, or "".
  std::string cause_of(std::int64_t rank);
  /// Forgets what has been reported, before the next start.
  void clear();

 private:
  std::array<int, 2> ends_{-1, -1};
  std::string text_;  ///< lines "<rank> <cause>"
};

/// The result of one start: the first rank that failed, if any.
struct LaunchResult {
  int code = 0;  ///< exit code of the first rank that failed; 128 + signal if it was killed
  std::optional<std::int64_t> rank;
  std::string description;  ///< how the rank ended: "ended with exit code 1"
  std::string cause;        ///< why the rank failed, if that was not its own failure
  std::chrono::milliseconds since_failure{0};  ///< from its end to that of all ranks
  bool stopped_on_request = false;             ///< the rank saved and stopped after a signal
  bool stop_requested = false;                 ///< by the user, of the rank or of the launcher
  bool is_leaving = false;                     ///< whether a signal requested that this host leaves
};

/// Supervises the ranks of one start until all have ended.
class Supervisor {
 public:
  struct Links {
    SignalQueue& signals;
    OutputQueue& out;
    OutputQueue& err;
    RootCausePipe& causes;
    Agent& agent;
  };
  struct Limits {
    double grace_s = 15;
    std::int64_t max_starts = 0;  ///< of one process
  };
  Supervisor(std::vector<RankProcess> processes, const Limits& limits, const Links& links);
  /// Runs until every rank has ended.
  LaunchResult run();
  /// Writes the output that is left, and returns the last lines of stderr of the rank that failed.
  /// Call it after run(). The reader of the output may be blocked: a signal that ends the launcher
  /// ends this too, and becomes `signal`.
  std::vector<std::string> finish_output(int& signal);
  /// Returns the processes that wait for the next start. Call it after finish_output().
  std::vector<RankProcess> take_kept();

 private:
  using Clock = std::chrono::steady_clock;
  void wait_for_events();
  int wait_milliseconds() const;
  void handle_signals();
  void apply_decision();
  void end_ranks(const std::string& reason);
  void check_leader_timeout();
  void post_unexplained_failure(bool is_final);
  void reap();
  void reclaim_processes();
  void record_ends(std::vector<RankEnd> ended);
  void report_stop(RankProcess& process, int status);
  void end_after_failure();
  LaunchResult result();
  void terminate_remaining();
  void signal_all(int signal);
  bool any_running() const;
  bool has_output() const;

  std::vector<RankProcess> processes_;
  const Limits limits_;
  SignalQueue& signals_;
  OutputQueue& out_;
  OutputQueue& err_;
  RootCausePipe& causes_;
  Agent& agent_;
  const std::int64_t round_;
  FirstFailure failure_;
  /// The rank that those with the failure waited for, and the signal that stopped it.
  struct StoppedRank {
    std::int64_t rank;
    int signal;
  };
  /// Returns the first rank that a signal has stopped.
  std::optional<StoppedRank> stopped_rank() const;
  std::optional<StoppedRank> stopped_rank_;
  bool stop_requested_ = false, is_leaving_ = false;
  std::optional<Clock::time_point> terminate_at_, kill_at_, post_at_;
  std::optional<Clock::time_point> failed_at_, leader_lost_at_, leave_deadline_;
  bool is_stopping_ = false;  ///< the agent has requested that the ranks save and stop
  bool is_ending_ = false;    ///< the ranks are ended for a reason that is not their own
  std::string end_reason_;    ///< that reason, unless a rank had failed before
};

}  // namespace megatron
