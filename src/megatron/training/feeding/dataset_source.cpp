#include "megatron/training/feeding/dataset_source.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/training/feeding/batch_stream.h"
#include "megatron/training/feeding/prefetch_source.h"

namespace megatron {
namespace {

template <class T>
at::Tensor matrix(const Batch& batch, const std::vector<T>& values, at::ScalarType type) {
  MEGATRON_CHECK(static_cast<std::int64_t>(values.size()) == batch.rows * batch.sequence_length,
                 values.size(), " values for ", batch.rows, " rows of ", batch.sequence_length);
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

/// Lines up the documents of all rows in one row.
void pack_documents(const Batch& batch, Microbatch& microbatch) {
  PackedSequences packed{.cu_seqlens = {}, .num_samples = batch.rows};
  std::vector<std::int64_t> ordinals;
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    const std::int64_t sample =
        batch.indices.ordinals[static_cast<std::size_t>(row)] - batch.indices.first_ordinal;
    std::int64_t number = 0;
    for (const BatchDocument& document : batch.documents[static_cast<std::size_t>(row)]) {
      packed.cu_seqlens.push_back(row * batch.sequence_length + document.begin);
      microbatch.lengths.push_back(document.num_tokens);
      ordinals.push_back(packed_ordinal(sample, number++));
    }
  }
  packed.cu_seqlens.push_back(batch.rows * batch.sequence_length);
  for (auto& [name, tensor] : microbatch.tensors) tensor = tensor.view({1, -1});
  microbatch.sample_ordinals = at::tensor(ordinals, at::kLong);
  microbatch.packed = std::move(packed);
}

Microbatch to_microbatch(const Batch& batch, const DatasetSourceOptions& options) {
  Microbatch result;
  result.tensors["tokens"] = matrix(batch, batch.tokens, at::kLong);
  result.tensors["labels"] = matrix(batch, batch.labels, at::kLong);
  result.tensors["position_ids"] =
      options.packs_documents ? matrix(batch, batch.position_ids, at::kLong) : positions(batch);
  result.tensors["loss_mask"] = matrix(batch, batch.loss_mask, at::kFloat);
  result.sample_ordinals = sample_ordinals(batch.indices);
  if (options.packs_documents) {
    pack_documents(batch, result);
  } else {
    if (options.document_masks)
      result.tensors["document_ids"] = matrix(batch, document_ids(batch), at::kInt);
    for (const std::int64_t padding : batch.padding)
      result.lengths.push_back(batch.sequence_length - padding);
  }
  if (std::ranges::count(batch.padding, 0) == batch.rows) result.lengths.clear();
  return result;
}

class DatasetSource : public MicrobatchSource {
 public:
  DatasetSource(std::shared_ptr<const Dataset> dataset, const DatasetSourceOptions& options)
      : options_(options), batches_(std::move(dataset), options.loader) {}

  /// What is prefetched are the rows of this rank, not those of whole sequences.
  Microbatch next() override {
    return context_slice(to_microbatch(batches_.next(), options_), options_.context_rank,
                         options_.context_ranks);
  }

 private:
  DatasetSourceOptions options_;
  BatchStream batches_;
};

}  // namespace

std::unique_ptr<MicrobatchSource> make_dataset_source(std::shared_ptr<const Dataset> dataset,
                                                      const DatasetSourceOptions& options) {
  return make_prefetch_source(
      std::make_unique<DatasetSource>(std::move(dataset), options),
      {.device = options.device, .in_thread = options.loader.num_workers > 0});
}

}  // namespace megatron
