// An endless stream of a dataset's batches.
#pragma once

#include <memory>

#include "megatron/datasets/data_loader.h"

namespace megatron {

class BatchStream {
 public:
  /// Starts at sample options.sampler.consumed_samples.
  BatchStream(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options);

  /// Returns the next batch. Starts again at the dataset's first sample when it reaches the end.
  Batch next();

 private:
  void open() { loader_ = std::make_unique<DataLoader>(dataset_, options_); }

  std::shared_ptr<const Dataset> dataset_;
  DataLoaderOptions options_;
  std::unique_ptr<DataLoader> loader_;
};

}  // namespace megatron
