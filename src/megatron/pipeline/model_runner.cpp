#include "megatron/pipeline/model_runner.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "megatron/config/transformer_config.h"
#include "megatron/parallel/collectives.h"
#include "megatron/pipeline/pipeline_plan.h"
#include "megatron/pipeline/run_schedule.h"

namespace megatron {

ModelRunner::ModelRunner(Model& stages, ParamStore& weights, const PipelineLayout& layout, Axis pp,
                         Axis cp)
    : model_(stages),
      weights_(&weights),
      pp_(std::move(pp)),
      cp_(std::move(cp)),
      schedule_(PipelinePlan(layout, {.schedule = "auto"}).evaluation_schedule(1)),
      last_rank_(rank_of(layout.order, layout.num_ranks,
                         std::ranges::find(layout.stages, true, &StageLayers::has_output) -
                             layout.stages.begin())) {}

at::Tensor ModelRunner::infer(const Pass& pass) const {
  if (pp_.size == 1) return model_.infer(pass);
  const at::NoGradGuard no_gradients;
  const at::TensorOptions on_device = at::TensorOptions(weights_->device()).dtype(at::kFloat);
  at::Tensor result = at::empty(model_.result_shape(pass), on_device);
  const std::vector<Microbatch> batch{pass.microbatch};
  PipelinePass forward{.batch = batch, .training = false, .wants = pass.wants};
  forward.num_logits = pass.num_logits;
  forward.last_hidden = pass.last_hidden;
  forward.routed_experts = pass.routed_experts;
  if (pass.routed_experts != nullptr)  // each stage writes its own layers
    *pass.routed_experts = no_routed_experts(pass, config(), weights_->device());
  if (pass.last_hidden != nullptr)  // the last stage sets its own
    pass.last_hidden->rows =
        at::empty({num_last_rows(pass, pass.last_hidden->counts), config().hidden_size}, on_device);
  if (pass.caches != nullptr) forward.caches.push_back(*pass.caches);
  forward.on_result = [&](std::size_t, const at::Tensor& own) { result = own.contiguous(); };
  run_schedule(schedule_, {model_, *weights_, pp_}, forward);
  if (result.numel() > 0) broadcast_(pp_, result, last_rank_, "logits");
  if (pass.last_hidden != nullptr && pass.last_hidden->rows.numel() > 0)
    broadcast_(pp_, pass.last_hidden->rows, last_rank_, "hidden rows");
  if (pass.routed_experts != nullptr) all_reduce_(pp_, *pass.routed_experts, "routed experts");
  advance_caches(pass);
  return result;
}

}  // namespace megatron
