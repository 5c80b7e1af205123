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
  std::string description;              ///< how the rank ended: "ended with exit code 1"
  std::vector<std::string> last_lines;  ///< last lines of its stderr
  std::string cause;                    ///< why the rank failed, if that was not its own failure
  std::chrono::milliseconds since_failure{0};  ///< from its end to that of all ranks
  bool was_signalled = false;                  ///< whether a signal had been forwarded to all ranks
  bool was_told_to_stop = false;               ///< whether another signal than the agent's was
  bool is_leaving = false;                     ///< whether a signal asked this host to leave
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
  /// Runs until every rank has ended and its output is written.
  LaunchResult run();
  /// Returns the processes that wait for the next start. Call it after run().
  std::vector<RankProcess> take_kept();

 private:
  using Clock = std::chrono::steady_clock;
  void wait_for_events();
  int wait_milliseconds() const;
  void handle_signals();
  void obey_agent();
  void end_ranks(const std::string& reason);
  void notice_lost_leader();
  void post_unexplained_failure(bool is_last_chance);
  /// The end of a rank, with a status as waitpid() returns it.
  struct End {
    RankProcess* process;
    int status;
  };
  void reap();
  void take_offers();
  void note_ends(std::vector<End> ended);
  void report_stop(RankProcess& process, int status);
  void remember_failure(const RankProcess& process, int status);
  void terminate_remaining();
  void signal_all(int signal);
  bool any_running() const;
  bool has_output() const;
  void drain();

  std::vector<RankProcess> processes_;
  const Limits limits_;
  SignalQueue& signals_;
  OutputQueue& out_;
  OutputQueue& err_;
  RootCausePipe& causes_;
  Agent& agent_;
  const std::int64_t round_;
  LaunchResult result_;
  std::optional<Clock::time_point> terminate_at_, kill_at_, post_at_;
  std::optional<Clock::time_point> failed_at_, leader_lost_at_, answer_by_;
  bool is_stopping_ = false;  ///< the agent has asked the ranks to save and stop
  bool is_ending_ = false;    ///< the ranks are ended for a reason that is not their own
  std::string end_reason_;    ///< that reason, unless a rank had failed before
};

}  // namespace megatron
