#include "megatron/params/data_parallel.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/zero_stage.h"
#include "megatron/parallel/communicators.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

/// Megatron's default bucket size, large enough to use the bandwidth of the whole group.
std::int64_t default_bucket_elements(std::int64_t ranks) {
  return std::max<std::int64_t>(40'000'000, 1'000'000 * ranks);
}

/// Returns the axis of members first, first + step, … of `all`; `index` is this rank's index among
/// them.
Axis part_of(const Axis& axis, std::int64_t first, std::int64_t step, std::int64_t size,
             std::int64_t index, const char* name, Communicators& communicators) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t i = 0; i < size; ++i)
    ranks.push_back(axis.comm->ranks().at(static_cast<std::size_t>(first + i * step)));
  return {.name = name, .rank = index, .size = size, .comm = communicators.group(ranks, name)};
}

/// Returns the options for weights that all ranks of `all` hold.
DataParallelOptions options_over(const Axis& all, const ParallelConfig& config,
                                 Communicators* communicators) {
  DataParallelOptions result{.all = all, .shard = {all.name}, .replica = all};
  const int stage = zero_stage(config);
  if (stage > 0) {
    const std::int64_t instances = config.num_distributed_optimizer_instances,
                       size = all.size / instances;
    MEGATRON_CHECK(all.size % instances == 0, instances, " optimizer instances over ", all.size,
                   " data-parallel ranks");
    result.shard = all;
    result.replica = {all.name};
    if (instances > 1) {
      MEGATRON_CHECK(communicators != nullptr && all.comm != nullptr,
                     "instances of the distributed optimizer need groups");
      const std::int64_t instance = all.rank / size, index = all.rank % size;
      result.shard = part_of(all, instance * size, 1, size, index, "dp-shard", *communicators);
      result.replica = part_of(all, index, size, instances, instance, "dp-replica", *communicators);
    }
  }
  if (stage > 1)
    result.strategy =
        stage == 2 ? ShardingStrategy::optim_grads : ShardingStrategy::optim_grads_params;
  result.shards_over_replicas = stage == 3 && config.outer_dp_sharding_strategy == "optim";
  result.unit_elements = config.suggested_communication_unit_size.value_or(0);
  result.num_buckets = config.overlap_grad_reduce ? config.ddp_num_buckets : std::nullopt;
  if (config.overlap_grad_reduce)
    result.bucket_elements = config.ddp_bucket_size.value_or(default_bucket_elements(all.size));
  result.pads_for_bus_bandwidth = config.ddp_pad_buckets_for_high_nccl_busbw;
  result.overlaps_grad_reduce = config.overlap_grad_reduce;
  result.overlaps_param_gather = config.overlap_param_gather;
  result.averages = config.ddp_average_in_collective;
  result.accumulates_in_fp32 = config.ddp_reduce_scatter_with_fp32_accumulation;
  result.compression = config.ddp_grad_compression;
  result.compression_rank = config.ddp_grad_compression_rank;
  return result;
}

}  // namespace

DataParallelOptions data_parallel(const ParallelConfig& config, const Rank& rank,
                                  Communicators* communicators) {
  return options_over(rank.dp_cp, config, communicators);
}

ReplicaGroups expert_groups(const ParallelConfig& config, const Rank& rank,
                            Communicators* communicators) {
  ReplicaGroups groups{.data_parallel = options_over(rank.edp, config, communicators),
                       .model = rank.expert_model};
  groups.data_parallel.num_averaged = rank.dp_cp.size;
  return groups;
}

}  // namespace megatron
