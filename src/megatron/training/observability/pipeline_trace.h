// Implements --trace: records when each rank computed and waited in some iterations, writes a
// timeline for ui.perfetto.dev, and compares it with the simulated schedule.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string_view>
#include <vector>

#include "megatron/pipeline/step_recorder.h"
#include "megatron/pipeline/trace/rank_trace.h"
#include "megatron/training/observability/timers.h"
#include "megatron/training/run/training_state.h"

namespace megatron {

struct LoggerConfig;
struct TrainingPlan;
struct Settings;

/// The traced iterations: recording starts when `begin` iterations are done and ends when `end` are
/// done.
struct TraceWindow {
  std::int64_t begin = 0, end = 0;
};

/// Returns the window from --profile-step-start and --profile-step-end when these flags are changed
/// or --profile is on. Otherwise returns the second and third iteration of this run, because the
/// first one includes memory allocation and connection setup; if the run has a single iteration,
/// returns that one. `done` is the number of iterations before this run.
TraceWindow trace_window(const LoggerConfig& logger, std::int64_t done, std::int64_t train_iters);

class PipelineTrace : private TimerListener {
 public:
  /// Returns whether --trace is given and the run trains.
  static bool is_wanted(const Settings& settings);

  /// Creates the output folder.
  PipelineTrace(const TrainingPlan& plan, const TrainingState& state, Timers& timers,
                std::ostream& out);
  ~PipelineTrace() override;

  /// Call it before each step.
  void before_step();
  /// Call it after each step, when `progress.iteration` is the finished iteration. Writes the trace
  /// after the last traced iteration: collective over the world.
  void after_step();
  /// Call it when the run stops; writes the trace if the window was cut short. Collective over the
  /// world.
  void close();
  /// Returns the listener for the schedule's steps in the coming iteration; null if it is not
  /// traced.
  StepListener* listener() { return is_in_step_ ? &recorder_ : nullptr; }

 private:
  void write();
  void on_start(std::string_view timer) override;
  void on_stop(std::string_view timer) override;

  const TrainingPlan& plan_;
  const TrainingState& state_;
  Timers& timers_;
  std::ostream& out_;
  bool is_written_ = false;
  TraceWindow window_;
  bool is_in_step_ = false;
  StepRecorder recorder_;
  std::vector<TracedPhase> open_;
  TracedIteration iteration_;
  RankTrace trace_;
};

}  // namespace megatron
