// --trace: when every rank computed and waited in some iterations, as a timeline for
// ui.perfetto.dev, and how that compares with the schedule's simulation.
#pragma once

#include <iosfwd>
#include <optional>

#include "megatron/pipeline/step_recorder.h"
#include "megatron/pipeline/trace/rank_trace.h"
#include "megatron/training/loop/trainer.h"
#include "megatron/training/observability/timers.h"

namespace megatron {

/// The iterations between `begin` and `end` done ones.
struct TraceWindow {
  std::int64_t begin = 0, end = 0;
};

/// --profile-step-start and --profile-step-end where they were changed or --profile is on; else the
/// second and third iteration of this run, of which `done` were made before: the first one
/// allocates memory and meets new peers. The only one when there is but one.
TraceWindow trace_window(const LoggerConfig& logger, std::int64_t done, std::int64_t train_iters);

class PipelineTrace : private TimerListener {
 public:
  /// Does nothing, ever, without --trace. Makes the folder.
  PipelineTrace(Trainer& trainer, std::ostream& out);
  ~PipelineTrace() override;

  /// Call before each step.
  void before_step();
  /// Call after each step, `progress.iteration` being the one just done. Writes after the last
  /// traced one: collective over the world.
  void after_step();
  /// Call when the run stops: writes what was recorded of a window cut short. Collective over the
  /// world.
  void close();
  /// What is to hear of the schedule's steps in the coming iteration; null outside the traced ones.
  StepListener* listener() { return is_in_step_ ? &recorder_ : nullptr; }

 private:
  void write();
  void on_start(std::string_view timer) override;
  void on_stop(std::string_view timer) override;

  Trainer& trainer_;
  std::ostream& out_;
  bool is_wanted_;
  TraceWindow window_;
  bool is_in_step_ = false;
  StepRecorder recorder_;
  std::vector<TracedPhase> open_;
  TracedIteration iteration_;
  RankTrace trace_;
};

}  // namespace megatron
