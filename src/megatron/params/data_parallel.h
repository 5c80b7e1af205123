// How the ranks that hold the same weights share gradients and optimizer state.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "megatron/config/settings.h"
#include "megatron/parallel/axis.h"
#include "megatron/parallel/rank.h"

namespace megatron {

class Communicators;

struct DataParallelOptions {
  Axis all{"dp-cp"};      ///< every rank with the same weights: shard × replica
  Axis shard{"dp-cp"};    ///< of one instance of the distributed optimizer: each owns a slice of
                          ///< every bucket; size 1: none
  Axis replica{"dp-cp"};  ///< ranks with the same slice
  std::int64_t bucket_elements = 0;  ///< a bucket is closed when it has as many; 0: one bucket
  std::optional<std::int64_t> num_buckets =
      {};  ///< how many there are, roughly; wins over bucket_elements
  bool pads_for_bus_bandwidth = false;
  bool overlaps_grad_reduce = false;   ///< a bucket is reduced as soon as backward has finished it
  bool overlaps_param_gather = false;  ///< a bucket is gathered until its first weight is read
  bool averages = false;               ///< gradients are divided by all.size; else only summed
  bool accumulates_in_fp32 =
      false;  ///< 16-bit gradients travel as they are and are added in float32
  std::string compression =
      "none";  ///< what gradients travel as (grad_compression.h): none | bf16 | low-rank
  std::int64_t compression_rank = 4;  ///< columns of low-rank
};

/// What the flags ask of `rank`. Collective over rank.dp_cp when there are several instances;
/// `communicators` makes their groups and may be null otherwise.
DataParallelOptions data_parallel(const ParallelConfig& config, const Rank& rank,
                                  Communicators* communicators);

}  // namespace megatron
