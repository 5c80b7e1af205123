#include "megatron/training/resilience/non_finite.h"

#include <cmath>

#include "megatron/config/field_values.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/resilience/diagnosis/explanation.h"
#include "megatron/training/resilience/diagnosis/op_trace.h"

namespace megatron {
namespace {

double loss_scale_of(const TrainStepContext& context) {
  return context.optimizer.loss_scale().item<double>();
}

/// Runs a microbatch of the step with every op recorded. Overwrites the gradients, which are not
/// reduced afterwards. Collective over the world.
OpTrace trace_of_step(const TrainStepContext& context, const TrainStepOptions& options,
                      const Microbatch& microbatch, bool is_scaled = true) {
  return trace_microbatch(
      context.model, context.weights, microbatch,
      {.per_token = options.calculate_per_token_loss,
       .gradient_factor = (is_scaled ? loss_scale_of(context) : 1) /
                          (static_cast<double>(options.num_microbatches) * loss_divisor(context)),
       .pp = &context.rank.pp,
       .order = context.pipeline.layout().order,
       .all_reduce_min = [&context](double place) {
         return -all_reduce_max({context.rank.world, context.rank.device}, {-place},
                                "diagnosis")[0];
       }});
}

std::string place(const std::vector<Microbatch>& batch, std::size_t index) {
  return "microbatch " + std::to_string(index + 1) + " of " + std::to_string(batch.size()) + " (" +
         sample_list(batch[index]) + ")";
}

std::string advice(const TrainStepOptions& options) {
  if (!options.non_finite_checkpoint.empty())
    return "\n  cause: " + options.non_finite_checkpoint +
           "\n  fix: load a checkpoint from before the run diverged (--ckpt-step N, with another "
           "--save folder), or other weights";
  return "\n  fix: lower --lr and resume from the last checkpoint, pass over these samples with "
         "--iterations-to-skip " +
         std::to_string(options.iteration) +
         ", or skip such updates with --no-check-for-nan-in-loss-and-grad";
}

bool on_any_rank(const Rank& rank, bool here) {
  return all_reduce_max({rank.world, rank.device}, {here ? 1.0 : 0.0}, "diagnosis")[0] != 0;
}

/// Chooses the suspect of the ranks where the first bad op occurred, or of the first rank when
/// there is none.
SuspectMicrobatch suspect_of(const Rank& rank, const std::vector<Microbatch>& batch,
                             std::size_t index, const OpTrace& trace) {
  const bool is_bad = trace.first_bad.has_value();
  return {.microbatch = batch[index],
          .index = index,
          .num_microbatches = static_cast<std::int64_t>(batch.size()),
          .gradient_scale = trace.gradient_scale,
          .is_here = on_any_rank(rank, is_bad) ? is_bad : rank.index == 0};
}

std::string at_iteration(const TrainStepOptions& options) {
  return "iteration " + std::to_string(options.iteration) + ": ";
}

NonFiniteError non_finite_loss(const TrainStepContext& context, const TrainStepOptions& options,
                               const std::vector<Microbatch>& batch, std::size_t index,
                               double loss) {
  const OpTrace found = trace_of_step(context, options, batch[index]);
  const std::string text = at_iteration(options) + "the loss of " + place(batch, index) + " is " +
                           (std::isnan(loss) ? "NaN" : "infinite");
  return {text + explain(found, context.weights, batch[index]) + advice(options),
          suspect_of(context.rank, batch, index, found)};
}

NonFiniteError non_finite_gradient(const TrainStepContext& context, const TrainStepOptions& options,
                                   const std::vector<Microbatch>& batch,
                                   const std::string& parameter) {
  const std::string text =
      at_iteration(options) + "the gradient of " + parameter + " is not finite (every loss was)";
  const double scale = loss_scale_of(context);
  // A dynamic scale is lowered instead.
  const std::string blame =
      "\n  cause: gradients overflow under the constant --loss-scale " + number_text(scale) +
      "\n  fix: lower it, or leave it out: --fp16 then lowers its own, --bf16 needs none";
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const OpTrace found = trace_of_step(context, options, batch[i]);
    const auto is_bad = [&](const OpTrace& trace) {
      return on_any_rank(context.rank, trace.first_bad.has_value());
    };
    if (!is_bad(found)) continue;
    const bool is_overflow =
        scale != 1 && !is_bad(trace_of_step(context, options, batch[i], /*is_scaled=*/false));
    return {text + "\n  first in " + place(batch, i) + explain(found, context.weights, batch[i]) +
                (is_overflow ? blame : advice(options)),
            suspect_of(context.rank, batch, i, found)};
  }
  return {text + "\n  each microbatch alone gives finite gradients: their sum overflows" +
              (scale != 1 ? blame : advice(options)),
          suspect_of(context.rank, batch, 0, {})};
}

}  // namespace

NonFiniteError non_finite_step(const TrainStepContext& context, const TrainStepOptions& options,
                               const std::vector<Microbatch>& batch,
                               const TrainStepResult& result) {
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const double loss = result.microbatch_losses[i];
    if (!std::isfinite(loss)) return non_finite_loss(context, options, batch, i, loss);
  }
  return non_finite_gradient(context, options, batch, result.update.non_finite_parameter);
}

}  // namespace megatron
