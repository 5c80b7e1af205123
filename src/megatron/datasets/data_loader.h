// Prepares batches ahead in threads and returns them in the sampler's order.
//
//   DataLoader loader(dataset, {.sampler = {.micro_batch_size = 4}, .vocab_size = 50257});
//   while (std::optional<Batch> batch = loader.next()) ...
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "megatron/base/ordered_pool.h"
#include "megatron/datasets/dataset.h"
#include "megatron/datasets/sampler.h"

namespace megatron {

/// A document of a row, with the padding behind its tokens.
struct BatchDocument {
  std::int64_t begin = 0, length = 0;
  std::int64_t num_tokens = 0;  ///< without padding
};

/// The samples of one microbatch: the values of each field, [rows, …].
struct Batch : FieldBuffers {
  std::int64_t rows = 0;
  std::vector<std::vector<BatchDocument>> documents = {};  ///< per row; one without document_starts
  BatchIndices indices = {};  ///< sample numbers and ordinals of the rows
};

struct DataLoaderOptions {
  SamplerOptions sampler = {};   ///< total_samples is taken from the dataset
  std::int64_t num_workers = 2;  ///< number of threads; 0: next() makes batches itself
  std::int64_t prefetch_factor = 2;
  std::int64_t vocab_size = 0;  ///< upper bound for the ids of tokens; 0: not checked
};

/// Only one thread may call next(). The destructor stops the workers.
class DataLoader {
 public:
  DataLoader(const std::shared_ptr<const Dataset>& dataset, DataLoaderOptions options);

  /// Returns the next batch; nullopt at the end of a `single` run that does not repeat. Rethrows a
  /// worker's exception at the batch's place in the order.
  std::optional<Batch> next() { return pool_->next(); }

 private:
  std::unique_ptr<OrderedPool<BatchIndices, Batch>> pool_;
};

/// Reads the samples of one batch. Throws a UserError with dataset, sample and id when an id is not
/// below `vocab_size` (0: not checked).
Batch make_batch(const Dataset& dataset, BatchIndices indices, std::int64_t vocab_size);

/// Returns for each token the index of its document in the row (0, 1, 2, …):
/// [rows, sequence_length].
std::vector<std::int32_t> document_ids(const Batch& batch);

}  // namespace megatron
