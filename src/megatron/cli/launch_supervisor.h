// Watches over the ranks of one start: forwards output and signals, and ends all when one has
// failed.
#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/cli/launch_ranks.h"

namespace megatron {

/// Signals as readable events, for as long as it lives; they do not interrupt anything.
class SignalQueue {
 public:
  SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  ~SignalQueue();

  int descriptor() const { return descriptor_; }
  /// The next signal that has come.
  std::optional<int> take();
  /// The mask as it was before: what the ranks shall have.
  const sigset_t& saved_mask() const { return saved_mask_; }

 private:
  int descriptor_ = -1;
  sigset_t saved_mask_;
};

/// Through which the ranks tell that another one is the cause of their end.
class RootCausePipe {
 public:
  RootCausePipe();
  RootCausePipe(const RootCausePipe&) = delete;
  RootCausePipe& operator=(const RootCausePipe&) = delete;
  ~RootCausePipe();
  int write_end() const { return ends_[1]; }
  /// What the rank has told; "" when nothing.
  std::string cause_of(std::int64_t rank);

 private:
  std::array<int, 2> ends_{-1, -1};
  std::string text_;  ///< lines "<rank> <cause>"
};

/// How the ranks of one start ended: the first that failed, if any.
struct LaunchResult {
  int code = 0;  ///< of the first rank that failed; 128 + signal when it was killed
  std::optional<std::int64_t> rank;
  std::string description;              ///< of the end of that rank: "ended with exit code 1"
  std::vector<std::string> last_lines;  ///< of its stderr
  std::string cause;  ///< in that rank's words, when another rank was the reason for its end
  bool was_signalled = false;  ///< a signal had been forwarded to all
};

class Supervisor {
 public:
  struct Links {
    SignalQueue& signals;
    OutputQueue& out;
    OutputQueue& err;
    RootCausePipe& causes;
  };
  Supervisor(std::vector<RankProcess> processes, double grace_s, const Links& links);
  /// Returns when every rank has ended and its output is written.
  LaunchResult run();

 private:
  using Clock = std::chrono::steady_clock;
  void wait_for_events();
  void handle_signals();
  void reap();
  void report_stop(RankProcess& process, int status);
  void remember_failure(const RankProcess& process, int status);
  void terminate_remaining();
  void signal_all(int signal);
  bool any_running() const;
  bool has_output() const;
  void drain();

  std::vector<RankProcess> processes_;
  double grace_s_;
  SignalQueue& signals_;
  OutputQueue& out_;
  OutputQueue& err_;
  RootCausePipe& causes_;
  LaunchResult result_;
  std::optional<Clock::time_point> terminate_at_, kill_at_;
};

}  // namespace megatron
