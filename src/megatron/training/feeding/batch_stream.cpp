#include "megatron/training/feeding/batch_stream.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

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

at::Tensor tensor_of(const FieldValues& values, at::IntArrayRef shape) {
  return std::visit(
      [&](const auto& from) {
        using Value = typename std::decay_t<decltype(from)>::value_type;
        at::Tensor tensor = at::empty(shape, c10::CppTypeToScalarType<Value>::value);
        MEGATRON_CHECK(tensor.numel() == std::ssize(from), from.size(), " values for ", shape);
        std::ranges::copy(from, tensor.data_ptr<Value>());
        return tensor;
      },
      values);
}

}  // namespace megatron
