// Batches prepared ahead by threads, in the sampler's order.
//
//   DataLoader loader(dataset, {.sampler = {.consumed_samples = 320, .micro_batch_size = 4},
//   .num_workers = 2, .vocab_size = 50257}); while (std::optional<Batch> batch = loader.next()) ...
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "megatron/base/ordered_pool.h"
#include "megatron/datasets/dataset.h"
#include "megatron/datasets/sampler.h"

namespace megatron {

/// Samples of one microbatch; the matrices are [rows, sequence_length], row by row.
struct Batch {
  std::int64_t rows = 0, sequence_length = 0;
  std::vector<std::int64_t> tokens, labels, position_ids;
  std::vector<float> loss_mask;
  std::vector<std::vector<std::int64_t>>
      document_starts;   ///< for each row; {0} unless attention is reset at ends of documents
  BatchIndices indices;  ///< the rows' samples and ordinals
};

struct DataLoaderOptions {
  SamplerOptions sampler = {};   ///< total_samples is taken from the dataset
  std::int64_t num_workers = 2;  ///< 0: batches are made inside next()
  std::int64_t prefetch_factor = 2;
  std::int64_t vocab_size = 0;  ///< ids of tokens and labels must be below it; 0: not checked
};

/// next() belongs to one thread. Destroying a loader stops its threads.
class DataLoader {
 public:
  DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options);

  /// The next batch; nothing at the end of a `single` run. Throws what a worker threw, at its place
  /// in the order.
  std::optional<Batch> next() { return pool_->next(); }

 private:
  std::unique_ptr<OrderedPool<BatchIndices, Batch>> pool_;
};

/// Reads the samples of one batch. A UserError names dataset, sample and id when an id is outside
/// the vocabulary (0: not checked).
Batch make_batch(const Dataset& dataset, BatchIndices indices, std::int64_t vocab_size);

/// Per token the number of its document within the row, 0, 1, 2 …: [rows, sequence_length].
std::vector<std::int32_t> document_ids(const Batch& batch);

}  // namespace megatron
