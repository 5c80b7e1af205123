// --log-straggler: measures this rank's parts of a step, gathers the times of all ranks every few
// steps, and reports on rank 0.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/parallel/communicators.h"
#include "megatron/training/observability/http_endpoint.h"
#include "megatron/training/observability/stragglers/part_clock.h"
#include "megatron/training/observability/stragglers/straggler_tracker.h"

namespace megatron {

struct LoggerConfig;
struct Rank;
struct Settings;
struct TrainingPlan;

/// The switch of the straggler report, which HTTP requests to --straggler-ctrlr-port throw
/// (`curl localhost:65535`), as in Megatron.
class StragglerToggle {
 public:
  /// UserError when the port cannot be opened; 0 opens any free port.
  StragglerToggle(int port, bool is_on)
      : is_on_(is_on),
        endpoint_({.flag = "--straggler-ctrlr-port", .port = port, .path = ".*"}, [this] {
          const bool on = !is_on_.load();
          is_on_ = on;
          return std::string("straggler report: ") + (on ? "on" : "off") + "\n";
        }) {}

  bool is_on() const { return is_on_; }
  int port() const { return endpoint_.port(); }

 private:
  std::atomic<bool> is_on_;
  HttpEndpoint endpoint_;  ///< last, so that its thread ends first
};

class StragglerMonitor {
 public:
  /// Times are gathered after the iterations that this divides.
  static constexpr std::int64_t kGatherInterval = 5;

  static bool is_wanted(const Settings& settings);

  /// Starts the measurement. On rank 0 it opens --straggler-ctrlr-port, and prints a warning to
  /// `out` when that fails or when no rank has a peer. `communicators` is null for a single rank.
  /// Collective over the world.
  StragglerMonitor(const TrainingPlan& plan, Timers& timers, Communicators* communicators,
                   std::ostream& out);
  StragglerMonitor(const StragglerMonitor&) = delete;
  StragglerMonitor& operator=(const StragglerMonitor&) = delete;
  ~StragglerMonitor() { timers_.remove_listener(clock_); }

  /// Call it after each step. Every few steps it is collective over the world, and returns the
  /// result on rank 0 if the report is switched on.
  std::optional<StragglerMetrics> after_step(std::int64_t iteration);
  /// Returns the lines to print after a step: the ranks that became slow and, when a log interval
  /// has closed, the fastest and slowest ranks.
  std::vector<std::string> take_lines(bool closes_interval);
  /// Gathers the last steps of the run. Collective over the world.
  void close() { gather(); }

 private:
  std::optional<StragglerMetrics> gather();
  /// On rank 0.
  void open_report(const LoggerConfig& logger, std::vector<RankPlace> places, std::ostream& out);

  const Rank& rank_;
  Timers& timers_;
  PartClock clock_;
  bool has_warmed_up_ = false;  ///< the first step allocates memory and connects the ranks
  std::vector<std::int64_t> iterations_;  ///< of the steps not yet gathered
  std::vector<OwnTimes> steps_;
  OwnTimes cpu_at_last_gather_;
  bool is_report_due_ = false;
  std::optional<StragglerTracker> tracker_;  ///< on rank 0
  std::optional<StragglerToggle> toggle_;    ///< on rank 0
};

}  // namespace megatron
