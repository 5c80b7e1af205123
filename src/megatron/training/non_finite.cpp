#include "megatron/training/non_finite.h"

#include <cmath>

#include "megatron/training/diagnosis/explanation.h"
#include "megatron/training/diagnosis/op_trace.h"

namespace megatron {
namespace {

std::string place(const std::vector<Microbatch>& batch, std::size_t index) {
  return "microbatch " + std::to_string(index + 1) + " of " + std::to_string(batch.size()) + " (" + sample_list(batch[index]) + ")";
}

std::string advice(const TrainStepOptions& options) {
  return "\n  fix: lower --lr and resume from the last checkpoint, pass over these samples with --iterations-to-skip " +
         std::to_string(options.iteration) + ", or skip such updates with --no-check-for-nan-in-loss-and-grad";
}

OpTrace trace(const TrainStepParts& parts, const TrainStepOptions& options, const Microbatch& microbatch) {
  return trace_microbatch(parts.model, parts.weights, microbatch,
                          {.per_token = options.calculate_per_token_loss,
                           .gradient_factor = parts.optimizer.loss_scale().item<double>() / static_cast<double>(options.num_microbatches)});
}

SuspectMicrobatch suspect_of(const std::vector<Microbatch>& batch, std::size_t index, const OpTrace& trace) {
  return {batch[index], index, static_cast<std::int64_t>(batch.size()), trace.gradient_scale};
}

std::string at_iteration(const TrainStepOptions& options) { return "iteration " + std::to_string(options.iteration) + ": "; }

}  // namespace

NonFiniteError non_finite_step(const TrainStepParts& parts, const TrainStepOptions& options, const std::vector<Microbatch>& batch,
                               const TrainStepResult& result) {
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const double loss = result.microbatch_losses[i];
    if (!std::isfinite(loss)) return non_finite_loss(parts, options, batch, i, loss);
  }
  return non_finite_gradient(parts, options, batch, result.update.non_finite_parameter);
}

NonFiniteError non_finite_loss(const TrainStepParts& parts, const TrainStepOptions& options, const std::vector<Microbatch>& batch, std::size_t index,
                               double loss) {
  const OpTrace found = trace(parts, options, batch[index]);
  const std::string text = at_iteration(options) + "the loss of " + place(batch, index) + " is " + (std::isnan(loss) ? "NaN" : "infinite");
  return {text + explain(found, parts.weights, batch[index]) + advice(options), suspect_of(batch, index, found)};
}

NonFiniteError non_finite_gradient(const TrainStepParts& parts, const TrainStepOptions& options, const std::vector<Microbatch>& batch,
                                   const std::string& parameter) {
  const std::string text = at_iteration(options) + "the gradient of " + parameter + " is not finite (every loss was)";
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const OpTrace found = trace(parts, options, batch[i]);
    if (!found.first_bad) continue;
    return {text + "\n  first in " + place(batch, i) + explain(found, parts.weights, batch[i]) + advice(options),
            suspect_of(batch, i, found)};
  }
  return {text + "\n  each microbatch alone gives finite gradients: their sum overflows" + advice(options), suspect_of(batch, 0, {})};
}

}  // namespace megatron
