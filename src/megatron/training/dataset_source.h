// The loader's batches as microbatches of tensors.
#pragma once

#include <memory>

#include "megatron/datasets/loader.h"
#include "megatron/training/microbatch_source.h"

namespace megatron {

struct DatasetSourceOptions {
  LoaderOptions loader = {};
  bool document_masks = false;  ///< attention stays inside documents: adds document_ids
};

/// Batches from options.loader.sampler.consumed_samples on, from the start again at the dataset's end.
std::unique_ptr<MicrobatchSource> make_dataset_source(std::shared_ptr<const Dataset> dataset, const DatasetSourceOptions& options);

}  // namespace megatron
