#include "megatron/training/feeding/batch_stream.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {

BatchStream::BatchStream(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options)
    : dataset_(std::move(dataset)), options_(options) {
  SamplerOptions& sampler = options_.sampler;
  const std::int64_t together = sampler.micro_batch_size * sampler.data_parallel_size;
  const std::int64_t usable = dataset_->size() / together * together;
  if (sampler.kind == SamplerKind::single)
    sampler.consumed_samples %= std::max<std::int64_t>(usable, 1);
  open();
}

Batch BatchStream::next() {
  std::optional<Batch> batch = loader_->next();
  if (!batch) {
    options_.sampler.consumed_samples = 0;
    open();
    batch = loader_->next();
  }
  MEGATRON_CHECK(batch.has_value(), "a dataset of ", dataset_->size(),
                 " samples returned no batch");
  return std::move(*batch);
}

}  // namespace megatron
