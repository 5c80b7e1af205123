// An endless stream of a dataset's batches, and their values as tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "megatron/datasets/data_loader.h"

namespace megatron {

class BatchStream {
 public:
  /// Starts at sample options.sampler.consumed_samples.
  BatchStream(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options);

  /// Returns the next batch. Starts again at the dataset's first sample when it reaches the end.
  Batch next();
  const SampleFields& fields() const { return dataset_->fields(); }

 private:
  void open() { loader_ = std::make_unique<DataLoader>(dataset_, options_); }

  std::shared_ptr<const Dataset> dataset_;
  DataLoaderOptions options_;
  std::unique_ptr<DataLoader> loader_;
};

/// Copies the values of a field into a tensor of this shape.
at::Tensor tensor_of(const FieldValues& values, at::IntArrayRef shape);

}  // namespace megatron
