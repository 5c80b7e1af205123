// Converts the data loader's batches to microbatches of tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>

#include "megatron/datasets/data_loader.h"
#include "megatron/training/feeding/microbatch_source.h"

namespace megatron {

struct DatasetSourceOptions {
  DataLoaderOptions loader = {};
  std::int64_t context_rank = 0, context_ranks = 1;  ///< of cp, whose rows are returned
  bool document_masks = false;    ///< adds document_ids: attention does not cross documents
  bool packs_documents = false;   ///< packs the documents of a microbatch (Microbatch::packed)
  c10::Device device{c10::kCPU};  ///< device of the returned tensors
};

/// Returns microbatches from sample options.loader.sampler.consumed_samples on. The source starts
/// again at the dataset's first sample when it reaches the end.
std::unique_ptr<MicrobatchSource> make_dataset_source(const std::shared_ptr<const Dataset>& dataset,
                                                      DatasetSourceOptions options);

/// Copies the values of a field into a tensor of this shape.
at::Tensor tensor_of(const FieldValues& values, at::IntArrayRef shape);

}  // namespace megatron
