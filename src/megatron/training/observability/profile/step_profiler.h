// --profile: records the steps between --profile-step-start and --profile-step-end, then prints a
// table and writes a trace.
#pragma once

#include <iosfwd>
#include <memory>
#include <optional>

#include "megatron/nn/unit_hooks.h"
#include "megatron/training/loop/trainer.h"
#include "megatron/training/observability/profile/op_recorder.h"
#include "megatron/training/observability/profile/profile_output.h"
#include "megatron/training/observability/timers.h"

namespace megatron {

class StepProfiler : private UnitHooks, private TimerListener {
 public:
  /// Does nothing, ever, without --profile or where --profile-ranks leaves this rank out.
  StepProfiler(Trainer& trainer, std::ostream& out);
  ~StepProfiler() override;

  /// Call before each step; as in Megatron, recording starts when --profile-step-start iterations
  /// are done.
  void before_step();
  /// Call after each step, `progress.iteration` being the one just done; prints and writes after
  /// --profile-step-end.
  void after_step();
  /// Call when the run stops: prints and writes what was recorded of a window cut short.
  void close();

 private:
  void start();
  void finish();
  std::string trace_path() const;
  void before_forward(const Module& unit) override;
  void after_forward(const Module& unit, const at::Tensor& output) override;
  void on_start(std::string_view timer) override;
  void on_stop(std::string_view timer) override;

  Trainer& trainer_;
  std::ostream& out_;
  bool is_wanted_;
  bool is_in_step_ = false;
  std::int64_t first_iteration_ = 0;
  AllocationCounts at_start_;  ///< counts when recording started
  std::string backward_unit_;  ///< the module whose backward pass runs
  std::unique_ptr<OpRecorder> recorder_;
  std::optional<UnitHooksScope> hooks_;
};

}  // namespace megatron
