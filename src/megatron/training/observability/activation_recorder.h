// Measures the activations that the units of a model keep for backward, from the bytes that tensors
// hold at the boundaries of units and of the schedule's steps, without those of gathered weights.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "megatron/models/model.h"
#include "megatron/pipeline/run_schedule.h"
#include "megatron/training/observability/memory_breakdown.h"

namespace megatron {

/// Observes the steps of a rank. It keeps the figures of the moment at which most was kept. Hooks
/// that were installed before still receive all calls.
class ActivationRecorder : public StepListener, private UnitHooks {
 public:
  /// Both must outlive this.
  ActivationRecorder(Model& model, const ParamStore& weights);
  ActivationRecorder(const ActivationRecorder&) = delete;
  ActivationRecorder& operator=(const ActivationRecorder&) = delete;
  ~ActivationRecorder() override = default;

  /// Call it before each step of training. `next`, which may be null, receives all calls too.
  void before_step(StepListener* next);
  /// Call it after each step. Returns what the step kept at most.
  RecordedActivations after_step();

 private:
  void begin(const ScheduleStep& step) override;
  void end(const ScheduleStep& step) override;
  void before_forward(const Module& unit) override;
  void after_forward(const Module& unit, const at::Tensor& output) override;
  bool observes_ops() const override;
  void after_op(const std::string& op, const at::Tensor& output) override;
  bool observes_backward() const override;
  void before_backward(const Module& unit, const at::Tensor& gradient) override;
  void after_backward(const Module& unit) override;
  UnitHooks* other_hooks() const { return hooks_ ? hooks_->enclosing() : nullptr; }
  double live_bytes() const;
  void record_peak();

  Model& model_;
  const ParamStore& weights_;
  std::optional<UnitHooksScope> hooks_;
  std::optional<double> base_bytes_;  ///< before the first forward of the step
  double unit_begin_bytes_ = 0;
  std::int32_t chunk_ = 0;                          ///< of the current forward
  std::map<std::int32_t, std::int64_t> in_flight_;  ///< microbatches of each chunk
  std::map<const Module*, double> unit_bytes_;      ///< of one microbatch
  std::map<const Module*, std::int32_t> unit_chunk_;
  RecordedActivations most_;
};

}  // namespace megatron
