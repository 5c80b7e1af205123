// The interpreter of schedules: runs the steps of this rank in order. Sends and receives overlap
// with computation. An activation is freed once it is sent, and weight gradients are deferred where
// the schedule has separate steps for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "megatron/models/model.h"
#include "megatron/parallel/axis.h"
#include "megatron/params/param_store.h"
#include "megatron/schedules/schedule.h"

namespace megatron {

class OverlappedPair;

/// Receives a callback for every step of a rank.
class StepListener {
 public:
  virtual ~StepListener() = default;
  /// A computing step begins; its inputs have arrived. The second of two joined steps begins and
  /// ends within the first.
  virtual void begin(const ScheduleStep& step) = 0;
  virtual void end(const ScheduleStep& step) = 0;
  /// A send or receive has been posted.
  virtual void posted(const ScheduleStep& message) {
    if (next_ != nullptr) next_->posted(message);
  }
  /// The rank begins to wait for a receive.
  virtual void begin_wait(const ScheduleStep& receive) {
    if (next_ != nullptr) next_->begin_wait(receive);
  }
  virtual void end_wait(const ScheduleStep& receive) {
    if (next_ != nullptr) next_->end_wait(receive);
  }

 protected:
  StepListener* next_ = nullptr;  ///< receives what a listener does not override
};

struct PipelineParts {
  Model& model;
  ParamStore& weights;
  const Axis& pp;  ///< Rank r of this axis holds the chunks of the schedule's rank r.
  /// Overlapped pair of the layers' axes (overlapped_pair_of()). Joined steps overlap through it;
  /// when it is null they run one after the other.
  OverlappedPair* pair = nullptr;
};

struct PipelinePass {
  const std::vector<Microbatch>& batch;  ///< Must be the same microbatches on every stage.
  bool training = true;                  ///< Enables dropout; the schedule has backward steps.
  /// Called on the last stage after each of its forwards, with the loss by the model's objective.
  /// Returns the scalar that backward starts from; undefined without backward.
  std::function<at::Tensor(std::size_t microbatch, const StepOutput& output)> on_loss = {};
  /// Called once, between this rank's last forward and its first backward, when all forwards come
  /// first. The pass ends there when it returns false.
  std::function<bool()> before_backward = {};
  StepListener* listener = nullptr;
  /// Number of the microbatches in flight on a rank that recompute only what the model's plan says.
  /// The others recompute every layer (Korthikanti et al. 2022, appendix C). Without a value, all
  /// follow the plan.
  std::optional<std::int64_t> num_partially_recomputed = {};
  Wants wants = Wants::loss;
  std::vector<Caches> caches = {};            ///< of each microbatch's sequences; empty: none
  std::vector<std::int64_t> num_logits = {};  ///< of each microbatch's sequences (models/pass.h)
  LastHidden* last_hidden = nullptr;          ///< Pass::last_hidden of the last stage
  at::Tensor* routed_experts = nullptr;       ///< Pass::routed_experts, one for all stages
  /// Called on the last stage after each forward that wants another result than the loss.
  std::function<void(std::size_t microbatch, const at::Tensor& result)> on_result = {};
};

/// Runs this rank's steps of a valid schedule with messages (schedules/validate.h). Accumulates
/// gradients in parts.weights; call it between zero_gradients and finalize_gradients. Collective
/// over pp.
void run_schedule(const Schedule& schedule, const PipelineParts& parts, const PipelinePass& pass);

}  // namespace megatron
