#include "megatron/training/feeding/dataset_source.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/training/feeding/prefetch_source.h"

namespace megatron {
namespace {

template <class T>
at::Tensor matrix(const Batch& batch, const std::vector<T>& values, at::ScalarType type) {
  MEGATRON_CHECK(static_cast<std::int64_t>(values.size()) == batch.rows * batch.sequence_length,
                 "a batch of ", values.size(), " elements");
  at::Tensor tensor = at::empty({batch.rows, batch.sequence_length}, type);
  std::ranges::copy(values, tensor.data_ptr<T>());
  return tensor;
}

/// Returns position ids as [1, s] when all samples have the same ones, so that no comparison is
/// needed on the device; otherwise as [b, s].
at::Tensor positions(const Batch& batch) {
  const at::Tensor all = matrix(batch, batch.position_ids, at::kLong);
  const auto& ids = batch.position_ids;
  // Every row equals the previous one.
  const bool is_shared = std::equal(ids.begin() + batch.sequence_length, ids.end(), ids.begin());
  return is_shared ? all.narrow(0, 0, 1) : all;
}

/// Returns int64 [rows]: indices into the samples that all data-parallel ranks take in this step.
at::Tensor sample_ordinals(const BatchIndices& indices) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(indices.ordinals.size())}, at::kLong);
  std::ranges::transform(indices.ordinals, tensor.mutable_data_ptr<std::int64_t>(),
                         [&](std::int64_t ordinal) { return ordinal - indices.first_ordinal; });
  return tensor;
}

Microbatch to_microbatch(const Batch& batch, bool document_masks) {
  Microbatch result;
  result.tensors["tokens"] = matrix(batch, batch.tokens, at::kLong);
  result.tensors["labels"] = matrix(batch, batch.labels, at::kLong);
  result.tensors["position_ids"] = positions(batch);
  result.tensors["loss_mask"] = matrix(batch, batch.loss_mask, at::kFloat);
  result.sample_ordinals = sample_ordinals(batch.indices);
  if (document_masks) result.tensors["document_ids"] = matrix(batch, document_ids(batch), at::kInt);
  return result;
}

class DatasetSource : public MicrobatchSource {
 public:
  DatasetSource(std::shared_ptr<const Dataset> dataset, const DatasetSourceOptions& options)
      : dataset_(std::move(dataset)), options_(options) {
    SamplerOptions& sampler = options_.loader.sampler;
    const std::int64_t together = sampler.micro_batch_size * sampler.data_parallel_size;
    const std::int64_t usable = dataset_->size() / together * together;
    if (sampler.kind == SamplerKind::single)
      sampler.consumed_samples %= std::max<std::int64_t>(usable, 1);
    open();
  }

  Microbatch next() override {
    std::optional<Batch> batch = loader_->next();
    if (!batch) {
      options_.loader.sampler.consumed_samples = 0;
      open();
      batch = loader_->next();
    }
    MEGATRON_CHECK(batch.has_value(), "a dataset of ", dataset_->size(),
                   " samples returned no batch");
    return to_microbatch(*batch, options_.document_masks);
  }

 private:
  void open() { loader_ = std::make_unique<DataLoader>(dataset_, options_.loader); }

  std::shared_ptr<const Dataset> dataset_;
  DatasetSourceOptions options_;
  std::unique_ptr<DataLoader> loader_;
};

}  // namespace

std::unique_ptr<MicrobatchSource> make_dataset_source(std::shared_ptr<const Dataset> dataset,
                                                      const DatasetSourceOptions& options) {
  return make_prefetch_source(
      std::make_unique<DatasetSource>(std::move(dataset), options),
      {.device = options.device, .in_thread = options.loader.num_workers > 0});
}

}  // namespace megatron
