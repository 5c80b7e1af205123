#include "megatron/optimizer/step_controller.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "megatron/optimizer/optimizer_operations.h"

namespace megatron {
namespace {

constexpr std::int64_t kNumScalars = sizeof(kernels::StepScalars) / sizeof(double);

kernels::StepRules step_rules(double clip_grad, const LossScaling& scaling) {
  return {.clip_grad = clip_grad,
          .dynamic_loss_scale = scaling.is_dynamic,
          .min_loss_scale = scaling.min,
          .loss_scale_window = static_cast<double>(scaling.window),
          .hysteresis = static_cast<double>(scaling.hysteresis)};
}

}  // namespace

StepController::StepController(const ParamStore& store, const ParameterSums& sums, double clip_grad,
                               const LossScaling& scaling)
    : sums_(sums),
      operations_(optimizer_operations(store.device())),
      rules_(step_rules(clip_grad, scaling)),
      scalars_(
          at::empty({kNumScalars}, at::TensorOptions().dtype(at::kDouble).device(store.device()))) {
  kernels::StepScalars start;
  start.loss_scale = scaling.initial;
  start.hysteresis_tracker = static_cast<double>(scaling.hysteresis);
  write(start);
  plan_ = sums.plan(piece_gradients(store), table_);
}

void StepController::begin_step(const StepOptions& options) {
  {
    const PhaseTimer phase(options.timers, "optimizer-unscale-and-check-inf");
    sums_.run(operations_.sum_squares, plan_);
  }
  {
    const PhaseTimer phase(options.timers, "optimizer-clip-main-grad");
    const double* found_inf = options.found_inf.defined()
                                  ? static_cast<const double*>(options.found_inf.const_data_ptr())
                                  : nullptr;
    operations_.finalize(plan_, rules_,
                         {.lr = {options.lr, options.decoupled_lr.value_or(options.lr)},
                          .weight_decay = options.weight_decay,
                          .found_inf = found_inf},
                         scalars_on_device());
  }
  if (!options.count_zeros) return;
  const PhaseTimer phase(options.timers, "optimizer-count-zeros");
  sums_.run(operations_.count_zeros, plan_);
  operations_.finalize_zeros(plan_, scalars_on_device());
}

at::Tensor StepController::loss_scale() const {
  return scalars_[offsetof(kernels::StepScalars, loss_scale) / sizeof(double)];
}

StepResult StepController::result(const double* step_stats) const {
  const auto& stats = *reinterpret_cast<const kernels::StepScalars*>(step_stats);
  StepResult result{.applied = stats.applied != 0,
                    .grad_norm = stats.grad_norm,
                    .num_zeros = static_cast<std::int64_t>(stats.num_zeros),
                    .non_finite_parameter = {},
                    .loss_scale = stats.loss_scale};
  if (stats.first_non_finite >= 0)
    result.non_finite_parameter = sums_.names()[static_cast<std::size_t>(stats.first_non_finite)];
  return result;
}

void StepController::set_num_steps(std::int64_t steps) {
  kernels::StepScalars scalars = read();
  scalars.num_steps = static_cast<double>(steps);
  write(scalars);
}

std::optional<LossScaleState> StepController::loss_scale_state() const {
  if (!rules_.dynamic_loss_scale) return std::nullopt;
  const kernels::StepScalars scalars = read();
  return LossScaleState{scalars.loss_scale, static_cast<std::int64_t>(scalars.growth_tracker),
                        static_cast<std::int64_t>(scalars.hysteresis_tracker)};
}

void StepController::set_loss_scale_state(const LossScaleState& state) {
  if (!rules_.dynamic_loss_scale) return;
  kernels::StepScalars scalars = read();
  scalars.loss_scale = state.scale;
  scalars.growth_tracker = static_cast<double>(state.growth_tracker);
  scalars.hysteresis_tracker = static_cast<double>(state.hysteresis_tracker);
  write(scalars);
}

kernels::StepScalars StepController::read() const {
  return *static_cast<const kernels::StepScalars*>(scalars_.cpu().const_data_ptr());
}

void StepController::write(kernels::StepScalars scalars) {
  scalars_.copy_(at::from_blob(&scalars, {kNumScalars}, at::TensorOptions().dtype(at::kDouble)));
}

}  // namespace megatron
