// The interpreter of schedules: runs the steps of this rank one after the other. Activations and
// their gradients travel while other steps compute; an activation is let go as soon as it is sent,
// and a weight's gradients are put off where the schedule has a step of their own for them.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "megatron/models/language_model.h"
#include "megatron/parallel/axis.h"
#include "megatron/params/param_store.h"
#include "megatron/schedules/schedule.h"

namespace megatron {

class OverlappedPair;

/// Hears of every step of a rank.
class StepListener {
 public:
  virtual ~StepListener() = default;
  /// Of a step that computes: what it needs is there. Of two joined steps the second begins and
  /// ends inside the first.
  virtual void begin(const ScheduleStep& step) = 0;
  virtual void end(const ScheduleStep& step) = 0;
  /// A send or receive is under way from now on.
  virtual void posted(const ScheduleStep& /*message*/) {}
  /// The rank waits for a receive until end_wait.
  virtual void begin_wait(const ScheduleStep& /*receive*/) {}
  virtual void end_wait(const ScheduleStep& /*receive*/) {}
};

struct PipelineParts {
  LanguageModel& model;
  ParamStore& weights;
  const Axis& pp;                  ///< rank r of it holds the chunks of the schedule's rank r
  OverlappedPair* pair = nullptr;  ///< of the layers' axis (overlapped_pair_of): joined steps pass
                                   ///< under each other; null: they run one after the other
};

struct PipelinePass {
  const std::vector<Microbatch>& batch;  ///< the same microbatches on every stage
  bool training = true;                  ///< dropout is on, and the schedule has backward steps
  /// Called where the last stage is, after each of its forwards: what backward starts from (a
  /// scalar; undefined without backward).
  std::function<at::Tensor(std::size_t microbatch, const StepOutput& output)> on_loss;
  /// Called once, between this rank's last forward and its first backward, where all forwards come
  /// first: false ends the pass there.
  std::function<bool()> before_backward = {};
  StepListener* listener = nullptr;
};

/// Runs this rank's steps of a valid schedule with messages (schedules/validate.h). Gradients are
/// left to parts.weights, between its zero_gradients and finalize_gradients. Collective over pp.
void run_schedule(const Schedule& schedule, const PipelineParts& parts, const PipelinePass& pass);

}  // namespace megatron
