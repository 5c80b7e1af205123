#include "megatron/planner/checkpoint_plan.h"

#include <algorithm>
#include <cmath>

#include "megatron/config/memory_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/parallel/rank.h"
#include "megatron/planner/layer_trace.h"
#include "megatron/planner/plan_layouts.h"
#include "megatron/planner/rank_memory.h"

namespace megatron {
namespace {

/// Returns settings with which each rank holds all states of its weights in memory.
Settings without_sharding(Settings settings) {
  ParallelConfig& parallel = *settings.parallel;
  parallel.use_distributed_optimizer = parallel.use_megatron_fsdp = parallel.use_torch_fsdp2 =
      false;
  parallel.num_distributed_optimizer_instances = 1;
  parallel.data_parallel_sharding_strategy.clear();
  parallel.zero_stage = 0;
  settings.memory->offload = {};
  return settings;
}

}  // namespace

std::vector<CheckpointShare> checkpoint_shares(const Settings& settings, const ModelFamily& family,
                                               std::int64_t world_size) {
  const Settings whole = without_sharding(settings);
  const PipelineLayout layout = pipeline_layout(*whole.parallel, *whole.model);
  const std::int64_t num_microbatches = first_num_microbatches(whole, world_size);
  LayerTraces traces(family);
  std::vector<CheckpointShare> shares;
  for (const Rank& rank : pipeline_ranks(whole, world_size)) {
    const RankMemory memory = predict_rank_memory(whole, traces, rank, layout, num_microbatches);
    const double experts = memory.num_expert_weights,
                 all = std::max(experts + memory.num_dense_weights, 1.0),
                 share = (1 - experts / all) / static_cast<double>(rank.dp_cp.size) +
                         experts / all / static_cast<double>(rank.edp.size);
    shares.push_back(
        {memory.parameters * share, (memory.main_parameters + memory.optimizer_state) * share});
  }
  return shares;
}

double best_save_interval(double save_s, double failure_s) {
  if (save_s >= 2 * failure_s) return failure_s;
  const double half = save_s / (2 * failure_s);
  return std::sqrt(2 * save_s * failure_s) * (1 + std::sqrt(half) / 3 + half / 9) - save_s;
}

double lost_share(double interval_s, double save_s, double failure_s) {
  return save_s / interval_s + (interval_s + save_s) / (2 * failure_s);
}

}  // namespace megatron
