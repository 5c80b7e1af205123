// The loader's batches as microbatches of tensors.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "megatron/datasets/data_loader.h"
#include "megatron/training/feeding/microbatch_source.h"

namespace megatron {

struct DatasetSourceOptions {
  DataLoaderOptions loader = {};
  bool document_masks = false;    ///< attention stays inside documents: adds document_ids
  c10::Device device{c10::kCPU};  ///< of the microbatches
};

/// Batches from options.loader.sampler.consumed_samples on, from the start again at the dataset's
/// end.
std::unique_ptr<MicrobatchSource> make_dataset_source(std::shared_ptr<const Dataset> dataset,
                                                      const DatasetSourceOptions& options);

}  // namespace megatron
