// Samples of a dataset as microbatches of tensors, prepared ahead of the loop by a few threads.
#pragma once

#include <cstdint>
#include <memory>

#include "megatron/datasets/dataset.h"
#include "megatron/training/microbatch_source.h"

namespace megatron {

struct DatasetSourceOptions {
  std::int64_t micro_batch_size = 1;
  std::int64_t first_sample = 0;  ///< where a resumed run goes on
  std::int64_t vocab_size = 0;    ///< the model's; a token id outside is a UserError naming its sample
  std::int64_t num_workers = 2;   ///< --num-workers; 0: samples are read when they are asked for
  bool document_masks = false;    ///< attention stays inside documents: adds document_ids
};

/// Samples first_sample, first_sample + 1, … in order, from the start again at the dataset's end.
std::unique_ptr<MicrobatchSource> make_dataset_source(std::shared_ptr<const Dataset> dataset, const DatasetSourceOptions& options);

}  // namespace megatron
