#include "megatron/training/plan_pipeline.h"

#include <algorithm>
#include <optional>
#include <ostream>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/config/batch_schedule.h"
#include "megatron/training/measure_layers.h"

namespace megatron {
namespace {

}  // namespace

PipelinePlan plan_pipeline(const Settings& settings, const Rank& rank, std::ostream& out) {
  const ParallelConfig& parallel = settings.parallel;
  const std::int64_t num_layers = settings.model.num_layers;
  PipelinePlan::Options options{.schedule = schedule_name(parallel, num_layers),
                                .microbatch_group = parallel.microbatch_group_size_per_virtual_pipeline_stage.value_or(0),
                                .overlaps_messages = parallel.overlap_p2p_communication,
                                .activation_limit = parallel.pipeline_activation_limit};
  const bool is_searched = options.schedule == "auto";
  if (rank.pp.size == 1 || (!is_searched && parallel.pipeline_split != "measured"))
    return {pipeline_layout(parallel, num_layers), std::move(options)};
  const LayerTimes times = measure_layers(settings, rank);
  out << describe(times) << std::endl;
  const LayerCosts costs = layer_costs(times);
  return {pipeline_layout(parallel, num_layers, &costs), std::move(options)};
}

Axis embedding_axis(const Settings& settings, const PipelineLayout& layout, const Mesh& mesh, const Rank& rank, Communicators* communicators) {
  Axis axis{"embd"};
  const auto rank_with = [&](bool StageLayers::*part) {
    const auto stage = std::ranges::find_if(layout.stages, [&](const StageLayers& one) { return one.*part; }) - layout.stages.begin();
    return rank_of(layout.order, layout.num_ranks, stage);
  };
  const std::int64_t first = rank_with(&StageLayers::has_embedding), last = rank_with(&StageLayers::has_output), mine = rank.pp.rank;
  if (settings.model.untie_embeddings_and_output_weights || first == last || (mine != first && mine != last)) return axis;
  const RankList stages = mesh.group(rank.index, "pp");
  std::vector<std::int64_t> sharers{stages[static_cast<std::size_t>(first)], stages[static_cast<std::size_t>(last)]};
  std::ranges::sort(sharers);
  axis.rank = rank.index == sharers[0] ? 0 : 1;
  axis.size = 2;
  axis.comm = communicators->group(sharers, axis.name);
  return axis;
}

}  // namespace megatron
