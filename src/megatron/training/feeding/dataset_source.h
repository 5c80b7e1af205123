// Converts the data loader's batches to microbatches of tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <optional>

#include "megatron/datasets/data_loader.h"
#include "megatron/schedules/hybrid_context_schedule.h"
#include "megatron/training/feeding/microbatch_source.h"

namespace megatron {

/// Hybrid context parallelism: the documents of all samples of a step are assigned to the ranks of
/// dp-cp by their lengths. Every rank reads all samples of a step, so no rank waits for another
/// one's lengths. Documents without a token that the loss counts are left out.
struct HybridContextOptions {
  std::int64_t rank = 0, num_ranks = 1;  ///< in dp-cp
  std::int64_t max_rows_per_rank = 0;    ///< --max-seqlen-per-dp-cp-rank
  std::int64_t row_multiple = 1;         ///< tp with sequence parallelism
  SequenceCost cost = {};
  /// Returns the number of samples that all ranks together take in the step after `consumed`
  /// samples.
  std::function<std::int64_t(std::int64_t consumed)> samples_of_step = {};
};

struct DatasetSourceOptions {
  DataLoaderOptions loader = {};
  std::int64_t context_rank = 0, context_ranks = 1;  ///< of cp, whose rows are returned
  bool document_masks = false;   ///< adds document_ids: attention does not cross documents
  bool packs_documents = false;  ///< packs the documents of a microbatch (Microbatch::packed)
  /// > 0: leaves out the padding of samples that a padding mask describes. Those of a microbatch
  /// are packed then, in rows of a multiple of this (of tp with sequence parallelism). For whole
  /// sequences: one rank of cp.
  std::int64_t unpadded_row_multiple = 0;
  c10::Device device{c10::kCPU};  ///< device of the returned tensors
  /// With it, of the sampler only `consumed_samples` counts, and `context_rank` to
  /// `packs_documents` are not read. Microbatches are packed sequences, whose rows the ranks in
  /// Microbatch::packed->hybrid share.
  std::optional<HybridContextOptions> hybrid = {};
};

/// Returns microbatches from sample options.loader.sampler.consumed_samples on. The source starts
/// again at the dataset's first sample when it reaches the end. UserError when the data is damaged.
std::unique_ptr<MicrobatchSource> make_dataset_source(const std::shared_ptr<const Dataset>& dataset,
                                                      DatasetSourceOptions options);

/// Returns those of options.hybrid, without prefetching (hybrid_context_source.cpp).
std::unique_ptr<MicrobatchSource> make_hybrid_context_source(
    const std::shared_ptr<const Dataset>& dataset, const DatasetSourceOptions& options);

/// Copies the values of a field into a tensor of this shape.
at::Tensor tensor_of(const FieldValues& values, at::IntArrayRef shape);

}  // namespace megatron
