#include "megatron/planner/plan_pipeline.h"

#include <algorithm>
#include <optional>
#include <ostream>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/config/batch_schedule.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/rank.h"
#include "megatron/planner/measure_layers.h"

namespace megatron {
namespace {

/// Returns the layouts that the search considers: those with the requested number of chunks, or
/// with one and two chunks if it is unset. Stages are balanced by `costs` unless flags assign the
/// layers.
std::vector<PipelineLayout> searched_layouts(const ParallelConfig& parallel,
                                             const TransformerConfig& model,
                                             const LayerCosts& costs) {
  std::vector<PipelineLayout> layouts;
  const std::int64_t given = num_pipeline_chunks(parallel, model.num_layers);
  const bool is_free = !parallel.num_layers_per_virtual_pipeline_stage &&
                       !parallel.num_virtual_stages_per_pipeline_rank &&
                       parallel.pipeline_model_parallel_layout.empty();
  const bool has_stages = !parallel.pipeline_model_parallel_layout.empty() ||
                          parallel.decoder_first_pipeline_num_layers ||
                          parallel.decoder_last_pipeline_num_layers ||
                          parallel.account_for_embedding_in_pipeline_split ||
                          parallel.account_for_loss_in_pipeline_split;
  const auto add = [&](const char* schedule, std::int64_t chunks) {
    ParallelConfig config = parallel;
    config.pipeline_schedule = schedule;
    if (!has_stages) config.pipeline_split = "measured";
    if (is_free)
      config.num_virtual_stages_per_pipeline_rank =
          chunks > 1 ? std::optional(chunks) : std::nullopt;
    try {
      layouts.push_back(pipeline_layout(config, model, &costs));
    } catch (const UserError&) {
      if (!is_free) throw;  // skip a layout that does not fit unless flags request it
    }
  };
  if (is_free || given == 1) add("1f1b", 1);
  if (is_free || given > 1) add("interleaved", is_free ? 2 : given);
  if (is_free || given == 2) add("zb-v", 2);
  return layouts;
}

PipelinePlan searched_plan(const Settings& settings, const Rank& rank, const LayerTimes& times,
                           PipelinePlan::Options options) {
  const ParallelConfig& parallel = *settings.parallel;
  SearchRequest request{
      .num_ranks = parallel.pipeline_model_parallel_size,
      .num_microbatches =
          NumMicrobatchesCalculator(*settings.training, rank.dp.size).at(0).num_microbatches,
      .activation_limit = options.activation_limit.value_or(0),
      .microbatch_group = options.microbatch_group};
  const std::vector<PipelineLayout> layouts =
      searched_layouts(parallel, *settings.model, layer_costs(times, *settings.model));
  for (const PipelineLayout& layout : layouts)
    request.layouts.push_back(
        {layout.num_chunks, layout.order, stage_costs(times, layout, *settings.model)});
  const ScheduleCandidate best = search_schedule(request);
  const auto chosen = std::ranges::find_if(layouts, [&](const PipelineLayout& layout) {
    return layout.num_chunks == best.schedule.num_chunks && layout.order == best.schedule.order;
  });
  options.costs = stage_costs(times, *chosen, *settings.model);
  PipelinePlan plan(*chosen, std::move(options));
  plan.use(best.schedule);
  return plan;
}

}  // namespace

PipelinePlan plan_pipeline(const Settings& settings, const ModelFamily& family, const Rank& rank,
                           std::ostream& out) {
  const ParallelConfig& parallel = *settings.parallel;
  const TransformerConfig& model = *settings.model;
  PipelinePlan::Options options{
      .schedule = schedule_name(parallel, model.num_layers),
      .microbatch_group = parallel.microbatch_group_size_per_virtual_pipeline_stage.value_or(0),
      .overlaps_messages = parallel.overlap_p2p_communication,
      .activation_limit = parallel.pipeline_activation_limit,
      .num_partially_recomputed =
          settings.memory->recompute.num_microbatches_with_partial_activation_checkpoints};
  const bool is_searched = options.schedule == "auto";
  if (rank.pp.size == 1 || (!is_searched && parallel.pipeline_split != "measured"))
    return {pipeline_layout(parallel, model), std::move(options)};
  const ActivationPlan activations =
      activation_plan(*settings.memory, single_stage_layout(model.num_all_layers()));
  const LayerTimes times = measure_layers(settings, family, rank, &activations);
  out << describe(times) << std::endl;
  if (is_searched) return searched_plan(settings, rank, times, std::move(options));
  const LayerCosts costs = layer_costs(times, model);
  return {pipeline_layout(parallel, model, &costs), std::move(options)};
}

}  // namespace megatron
