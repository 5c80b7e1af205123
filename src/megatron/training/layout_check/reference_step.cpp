#include "megatron/training/layout_check/reference_step.h"

#include <ATen/ops/zeros.h>

#include <array>
#include <ostream>
#include <vector>

#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/pipeline/run_schedule.h"
#include "megatron/training/loop/trainer.h"

namespace megatron {
namespace {

/// The state of an optimizer is zero before its first update, which would hide that a rank has the
/// state of another's weights. The gradients of one step serve for all updates.
constexpr int kNumUpdates = 2;

/// Hands the outputs of ops to an observer, with the microbatch that runs.
class OpObserver final : public UnitHooks, public StepListener {
 public:
  OpObserver(const std::vector<Microbatch>& batch, StepObserver& observer)
      : batch_(batch), observer_(observer) {}
  void begin(const ScheduleStep& step) override {
    if (step.kind == StepKind::forward) microbatch_ = static_cast<std::size_t>(step.microbatch);
  }
  void end(const ScheduleStep& /*step*/) override {}
  void after_op(const std::string& op, const at::Tensor& output) override {
    observer_.activation(op, batch_.at(microbatch_), output);
  }

 private:
  const std::vector<Microbatch>& batch_;
  StepObserver& observer_;
  std::size_t microbatch_ = 0;
};

class Recorder final : public StepObserver {
 public:
  explicit Recorder(ReferenceStep& step) : step_(step) {}

  void activation(const std::string& op, const Microbatch& microbatch,
                  const at::Tensor& output) override {
    auto& of_op = step_.activations[op];
    if (of_op.empty()) step_.ops.push_back(op);
    of_op.try_emplace(microbatch.sample_ordinals[0].item<std::int64_t>(),
                      output.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true));
  }
  void tensor(CheckedKind kind, const Parameter& parameter, const at::Tensor& value) override {
    const at::Tensor whole = at::zeros(parameter.sharding().global_shape, at::kDouble);
    copy_slices(value.detach(), parameter.slices(), whole);
    step_.tensors[kind].emplace(parameter.name(), whole);
  }

 private:
  ReferenceStep& step_;
};

}  // namespace

TrainStepResult run_observed_step(Trainer& trainer, StepObserver& observer) {
  const TrainingPlan& plan = trainer.plan;
  const TrainingState& state = trainer.state;
  ParamStore& weights = *state.weights;
  const TrainStepOptions options{
      .iteration = 1,
      .num_microbatches = state.batch.num_microbatches,
      .first_ordinal = 0,
      .calculate_per_token_loss = plan.settings.training->calculate_per_token_loss,
      .update = {.lr = state.scheduler.lr(),
                 .decoupled_lr = state.scheduler.decoupled_lr(),
                 .weight_decay = state.scheduler.weight_decay()}};
  TrainStepContext context{*state.model,   weights,   *state.optimizer, *trainer.data.train,
                           trainer.timers, plan.rank, plan.pipeline};
  for (const Parameter* parameter : weights.parameters())
    observer.tensor(CheckedKind::initial_weight, *parameter, parameter->value());
  const std::vector<Microbatch> batch = fetch_microbatches(context, options);
  OpObserver ops(batch, observer);
  context.steps = &ops;
  {
    const UnitHooksScope hooks(*state.model, ops);
    forward_backward(context, options, batch);
  }
  // Observed ops run one by one. Losses and gradients are those of the run, whose ops are fused.
  context.steps = nullptr;
  const StepLosses losses = forward_backward(context, options, batch);
  weights.gather_gradients();
  for (const Parameter* parameter : weights.parameters())
    if (parameter->is_trained())
      observer.tensor(CheckedKind::gradient, *parameter, parameter->grad());
  for (int update = 0; update < kNumUpdates; ++update) update_weights(context, options, losses);
  TrainStepResult result = read_step(context, options, losses);
  for (const Parameter* parameter : weights.parameters())
    observer.tensor(CheckedKind::updated_weight, *parameter, parameter->value());
  return result;
}

const char* name_of(CheckedKind kind) {
  constexpr std::array kNames{"initial weight", "activation", "loss",
                              "gradient",       "grad norm",  "updated weight"};
  return kNames.at(static_cast<std::size_t>(kind));
}

ReferenceStep run_reference_step(const RunConfig& alone, const ModelFamilies& families) {
  std::ostream silent(nullptr);
  Trainer trainer =
      set_up(alone, silent,
             {.cpus = {.count = kUnboundCpus}, .params_dtype = at::kDouble, .families = &families});
  ReferenceStep step;
  Recorder recorder(step);
  const TrainStepResult result = run_observed_step(trainer, recorder);
  step.units = trainer.plan.units;
  step.loss = result.loss();
  step.grad_norm = result.update.grad_norm;
  return step;
}

}  // namespace megatron
