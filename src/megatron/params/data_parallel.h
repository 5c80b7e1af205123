// How the ranks that hold the same weights share gradients and optimizer state.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "megatron/parallel/axis.h"

namespace megatron {

struct Rank;
struct ParallelConfig;
class Communicators;

/// What the ranks of a shard axis divide among them (Rajbhandari et al. 2020); each value includes
/// those before it.
enum class ShardingStrategy : std::uint8_t {
  optim,              ///< ZeRO-1: the optimizer's state and the main weights
  optim_grads,        ///< ZeRO-2: and the gradients
  optim_grads_params  ///< ZeRO-3, FSDP: and the weights, which are gathered unit by unit
};

/// Groups, buckets and reduction of one set of data-parallel ranks.
struct DataParallelOptions {
  Axis all{"dp-cp"};  ///< every rank with the same weights: shard × replica
  /// The ranks of one instance of the distributed optimizer. Each owns a slice of every bucket.
  /// Size 1 means no distributed optimizer.
  Axis shard{"dp-cp"};
  Axis replica{"dp-cp"};  ///< ranks that own the same slice
  /// Has no effect on a shard axis of size 1.
  ShardingStrategy strategy = ShardingStrategy::optim;
  /// Replicas divide the optimizer state of their slice among them. Only with optim_grads_params.
  bool shards_over_replicas = false;
  /// Units of the model are communicated together until they have this many elements.
  std::int64_t unit_elements = 0;
  /// Size in elements at which a bucket closes; 0 means one bucket.
  std::int64_t bucket_elements = 0;
  /// Approximate number of buckets. It takes precedence over bucket_elements.
  std::optional<std::int64_t> num_buckets = {};
  bool pads_for_bus_bandwidth = false;
  bool overlaps_grad_reduce = false;   ///< reduce a bucket as soon as backward has finished it
  bool overlaps_param_gather = false;  ///< gather a bucket until its first weight is read; with
                                       ///< weights in shards: gather the next unit ahead
  bool averages = false;               ///< divide gradients by num_averaged; otherwise only sum
  /// 0 means all.size. Experts set it: their gradients hold the tokens of all ranks of dp-cp.
  std::int64_t num_averaged = 0;
  /// Lays out buckets so that no parameter lies in the slices of two ranks, for update rules that
  /// need whole matrices. Weights that stages share (embeddings) are cut all the same.
  bool keeps_parameters_whole = false;
  bool accumulates_in_fp32 = false;  ///< send 16-bit gradients in 16 bits and add them in float32
  /// Gradient compression (grad_compression.h): none | bf16 | low-rank.
  std::string compression = "none";
  std::int64_t compression_rank = 4;  ///< rank of the low-rank compression
};

/// Returns the ranks that update different parts of the same weights.
inline const Axis& updating_ranks(const DataParallelOptions& options) {
  return options.shards_over_replicas && options.shard.size > 1 ? options.all : options.shard;
}

/// The ranks among which a set of parameters is distributed.
struct ReplicaGroups {
  DataParallelOptions data_parallel = {};  ///< By default no other rank holds these weights.
  Axis model{"tp-pp"};                     ///< the ranks that together hold one replica
};

/// Derives the options of `rank` from the flags. Collective over rank.dp_cp when there are several
/// optimizer instances; `communicators` creates their groups and may be null otherwise.
DataParallelOptions data_parallel(const ParallelConfig& config, const Rank& rank,
                                  Communicators* communicators);

/// Derives the groups of the experts' weights from the flags. Collective over rank.edp when there
/// are several optimizer instances.
ReplicaGroups expert_groups(const ParallelConfig& config, const Rank& rank,
                            Communicators* communicators);

}  // namespace megatron
