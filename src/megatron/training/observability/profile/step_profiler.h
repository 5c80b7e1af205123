// Implements --profile: records the steps between --profile-step-start and --profile-step-end,
// prints a table and writes a trace.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "megatron/nn/forward_context.h"
#include "megatron/training/observability/profile/op_recorder.h"
#include "megatron/training/observability/profile/profile_output.h"
#include "megatron/training/observability/timers.h"
#include "megatron/training/run/training_state.h"

namespace megatron {

struct TrainingPlan;

class StepProfiler : private UnitHooks, private TimerListener {
 public:
  /// Returns whether --profile is on and --profile-ranks includes this rank.
  static bool is_wanted(const TrainingPlan& plan);

  StepProfiler(const TrainingPlan& plan, const TrainingState& state, Timers& timers,
               std::ostream& out);
  ~StepProfiler() override;

  /// Call it before each step. As in Megatron, recording starts when --profile-step-start
  /// iterations are done.
  void before_step();
  /// Call it after each step, when `progress.iteration` is the finished iteration. Prints and
  /// writes after --profile-step-end.
  void after_step();
  /// Call it when the run stops; prints and writes if the window was cut short.
  void close();

 private:
  void start();
  void finish();
  std::string trace_path() const;
  void before_forward(const Module& unit) override;
  void after_forward(const Module& unit, const at::Tensor& output) override;
  void on_start(std::string_view timer) override;
  void on_stop(std::string_view timer) override;

  const TrainingPlan& plan_;
  const TrainingState& state_;
  Timers& timers_;
  std::ostream& out_;
  bool is_finished_ = false;
  bool is_in_step_ = false;
  std::int64_t first_iteration_ = 0;
  AllocationCounts at_start_;  ///< counts when recording started
  std::string backward_unit_;  ///< the module whose backward pass runs
  std::unique_ptr<OpRecorder> recorder_;
  std::optional<UnitHooksScope> hooks_;
};

}  // namespace megatron
