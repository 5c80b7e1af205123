#include "megatron/training/loop/evaluation.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "megatron/config/evaluation_plan.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/pipeline/run_schedule.h"

namespace megatron {
namespace {

std::vector<Microbatch> next_microbatches(MicrobatchSource& source, const Axis& cp,
                                          std::int64_t count) {
  std::vector<Microbatch> batch = next_step(source, count);
  for (Microbatch& microbatch : batch) {
    microbatch = context_slice(std::move(microbatch), cp.rank, cp.size);
    const at::Tensor& tokens = microbatch.at("tokens");
    const std::int64_t count =
        microbatch.packed ? microbatch.packed->num_sequences() : tokens.size(0);
    microbatch.sample_ordinals = at::zeros({count}, tokens.options().dtype(at::kLong));
  }
  return batch;
}

}  // namespace

std::optional<double> evaluate(const EvaluationContext& context, MicrobatchSource& source,
                               std::int64_t num_microbatches, const std::function<bool()>& stop) {
  const c10::NoGradGuard no_gradients;
  const Rank& rank = context.rank;
  double loss_sum = 0, tokens = 0;
  const auto on_loss = [&](std::size_t, const StepOutput& output) {
    loss_sum += output.loss_sum.item<double>();
    tokens += output.count.item<double>();
    return at::Tensor();
  };
  const std::int64_t group = microbatches_per_pass(rank.pp.size);
  const SectionWatch::Evaluation evaluation(context.sections);
  for (std::int64_t begin = 0; begin < num_microbatches; begin += group) {
    if (stop()) return std::nullopt;
    const SectionWatch::Scope section = context.sections.enter_step();
    const std::vector<Microbatch> batch =
        next_microbatches(source, rank.cp, std::min(group, num_microbatches - begin));
    if (UnitValues* values = context.weights.unit_values()) values->begin_pass();
    run_schedule(context.pipeline.evaluation_schedule(static_cast<std::int64_t>(batch.size())),
                 {context.model, context.weights, rank.pp},
                 {.batch = batch, .training = false, .on_loss = on_loss});
  }
  const std::vector<double> replicas =
      all_reduce_sum({rank.dp_cp, rank.device}, {loss_sum, tokens}, "evaluation");
  // Nonzero only on the last stage.
  const std::vector<double> all = all_reduce_sum({rank.pp, rank.device}, replicas, "evaluation");
  return all[0] / std::max(all[1], 1.0);
}

}  // namespace megatron
