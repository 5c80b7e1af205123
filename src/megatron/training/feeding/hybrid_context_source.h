// The microbatches of hybrid context parallelism: the documents of all samples of a step are
// assigned to the ranks of dp-cp by their lengths (schedules/hybrid_context_schedule.h).
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "megatron/datasets/data_loader.h"
#include "megatron/schedules/hybrid_context_schedule.h"
#include "megatron/training/feeding/microbatch_source.h"

namespace megatron {

struct HybridContextOptions {
  std::int64_t rank = 0, num_ranks = 1;  ///< in dp-cp
  std::int64_t max_rows_per_rank = 0;    ///< --max-seqlen-per-dp-cp-rank
  std::int64_t row_multiple = 1;         ///< tp with sequence parallelism
  SequenceCost cost = {};
  /// Returns the number of samples that all ranks together take in the step after `consumed`
  /// samples.
  std::function<std::int64_t(std::int64_t consumed)> samples_of_step;
  std::int64_t first_sample = 0;  ///< samples consumed before
  std::int64_t num_workers = 0;   ///< threads that read samples; 0: next() reads
  std::int64_t vocab_size = 0;    ///< bound of ids; 0: not checked
  c10::Device device{c10::kCPU};  ///< of the returned tensors
};

/// Returns this rank's microbatches, packed sequences whose rows it shares with the ranks in
/// Microbatch::packed->hybrid. Every rank reads all samples of a step, so no rank waits for another
/// one's lengths. Documents without a token that the loss counts are left out. UserError when the
/// data is damaged.
std::unique_ptr<MicrobatchSource> make_hybrid_context_source(
    const std::shared_ptr<const Dataset>& dataset, const HybridContextOptions& options);

}  // namespace megatron
