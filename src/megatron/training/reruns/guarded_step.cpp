#include "megatron/training/reruns/guarded_step.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <unistd.h>

#include <cmath>
#include <iostream>
#include <ostream>

#include "megatron/base/error.h"
#include "megatron/training/reruns/save_suspect.h"

namespace megatron {
namespace {

const ResultCheck kNanLoss{.message = "found NaN in local forward loss calculation", .rejects = ResultCheck::Rejects::nan};
const ResultCheck kInfLoss{.message = "found Inf in local forward loss calculation", .rejects = ResultCheck::Rejects::inf};
const ResultCheck kSpikyLoss{.message = "Spiky loss", .rejects = ResultCheck::Rejects::large, .context = "loss", .fatal = false};
const ResultCheck kNanGrad{.message = "found NaN in local grad norm for bucket #0 in backward pass before data-parallel communication collective",
                           .rejects = ResultCheck::Rejects::nan,
                           .tolerance = 0.001};
const ResultCheck kInfGrad{.message = "found Inf in local grad norm for bucket #0 in backward pass before data-parallel communication collective",
                           .rejects = ResultCheck::Rejects::inf,
                           .tolerance = 0.001};
const ResultCheck kLargeGrad{
    .message = "found unexpected large grads in bucket #0 in backward pass before data-parallel communication collective",
    .rejects = ResultCheck::Rejects::large,
    .context = "grads",
    .tolerance = 0.001,
    .fatal = false};

ComputePlace this_place(const Rank& rank) {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return {.node = name, .device = rank.device.is_cpu() ? 0 : rank.device.index(), .has_alternative = !rank.device.is_cpu()};
}

RerunStateMachine::Options machine_options(const Trainer& trainer, std::ostream& out) {
  const RerunConfig& config = trainer.settings.rerun;
  return {.mode = rerun_mode(config.rerun_mode),
          .error_injection_rate = config.error_injection_rate,
          .error_injection_type = rerun_diagnostic(config.error_injection_type),
          .seed = trainer.rank.seed,
          .tracker_filename = config.result_rejected_tracker_filename,
          .place = this_place(trainer.rank),
          .log = [&out](const std::string& message) { out << message << std::endl; }};
}

/// √Σ of squares over all parameters, in float64.
double gradient_norm(const ParamStore& weights) {
  const at::NoGradGuard no_grad;
  double sum = 0;
  for (const Parameter* parameter : weights.parameters()) {
    const double norm = at::linalg_vector_norm(parameter->grad(), 2, std::nullopt, false, at::kDouble).item<double>();
    sum += norm * norm;
  }
  return std::sqrt(sum);
}

}  // namespace

GuardedStep::GuardedStep(Trainer& trainer, std::ostream& out) : trainer_(trainer), out_(out), machine_(machine_options(trainer, out)) {
  machine_.restore(*trainer.rerun_state, "the checkpoint's rerun state");
}

/// Whether results must be known before the weights change. A NaN or Inf leaves them alone by itself.
bool GuardedStep::reads_before_update() const {
  const RerunConfig& config = trainer_.settings.rerun;
  return config.check_for_spiky_loss || config.check_for_large_grads || machine_.mode() == RerunMode::report_stats || machine_.injects_errors() ||
         machine_.state() == RerunState::will_rerun_from_checkpoint;
}

GuardedStep::Outcome GuardedStep::run(const TrainStepParts& parts, const TrainStepOptions& options) {
  if (machine_.mode() == RerunMode::disabled) return {.step = run_unguarded(parts, options)};
  machine_.begin(options.iteration);
  Outcome outcome;
  const std::vector<Microbatch> batch = fetch_microbatches(parts, options);
  const StepLosses losses = forward_backward(parts, options, batch);
  if (reads_before_update()) {
    stop(judge(parts, options, batch, {read_losses(losses), gradient_norm(parts.weights)}), outcome);
    if (outcome.exit_code) return outcome;
  }
  update_weights(parts, options, losses);
  outcome.step = read_step(parts, options, losses);
  if (!reads_before_update() && options.check_for_nan) {
    stop(judge(parts, options, batch, {outcome.step.microbatch_losses, outcome.step.update.grad_norm}), outcome);
  }
  return outcome;
}

}  // namespace megatron
