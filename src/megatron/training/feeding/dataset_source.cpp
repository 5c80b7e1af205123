#include "megatron/training/feeding/dataset_source.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <variant>

#include "megatron/training/feeding/batch_stream.h"
#include "megatron/training/feeding/prefetch_source.h"

namespace megatron {
namespace {

/// Returns whether every sample of a batch has the same values.
bool has_equal_rows(const FieldValues& values, std::int64_t rows) {
  return std::visit(
      [&](const auto& all) {  // each row equals the one before
        return std::equal(all.begin() + std::ssize(all) / rows, all.end(), all.begin());
      },
      values);
}

/// Returns int64 [rows]: indices into the samples that all data-parallel ranks take in this step.
at::Tensor sample_ordinals(const BatchIndices& indices) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(indices.ordinals.size())}, at::kLong);
  std::ranges::transform(indices.ordinals, tensor.mutable_data_ptr<std::int64_t>(),
                         [&](std::int64_t ordinal) { return ordinal - indices.first_ordinal; });
  return tensor;
}

/// Lines up the documents of all rows in one row. Each gets the values that its sample has without
/// positions.
void pack_documents(const Batch& batch, Microbatch& microbatch) {
  PackedSequences packed{.cu_seqlens = {}, .num_samples = batch.rows};
  std::vector<std::int64_t> ordinals, rows;
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    const std::int64_t sample =
        batch.indices.ordinals[static_cast<std::size_t>(row)] - batch.indices.first_ordinal;
    std::int64_t number = 0;
    for (const BatchDocument& document : batch.documents[static_cast<std::size_t>(row)]) {
      packed.cu_seqlens.push_back(row * batch.sequence_length() + document.begin);
      microbatch.lengths.push_back(document.num_tokens);
      ordinals.push_back(packed_ordinal(sample, number++));
      rows.push_back(row);
    }
  }
  packed.cu_seqlens.push_back(batch.rows * batch.sequence_length());
  for (const SampleField& field : *batch.fields) {
    at::Tensor& tensor = microbatch.tensors.at(field.name);
    tensor = field.per_position ? tensor.flatten(0, 1).unsqueeze(0)
                                : at::index_select(tensor, 0, at::tensor(rows, at::kLong));
  }
  microbatch.sample_ordinals = at::tensor(ordinals, at::kLong);
  microbatch.packed = std::move(packed);
}

Microbatch to_microbatch(const Batch& batch, const DatasetSourceOptions& options) {
  Microbatch result{.tensors = {}, .sample_ordinals = sample_ordinals(batch.indices)};
  result.per_position.clear();
  for (std::size_t i = 0; i < batch.values.size(); ++i) {
    const SampleField& field = (*batch.fields)[i];
    std::vector<std::int64_t> shape = field.shape;
    shape.insert(shape.begin(), batch.rows);
    at::Tensor tensor = tensor_of(batch.values[i], shape);
    // Rows are compared here, so that no comparison is needed on the device.
    if (field.is_shareable && !options.packs_documents &&
        has_equal_rows(batch.values[i], batch.rows))
      tensor = tensor.narrow(0, 0, 1);
    if (field.per_position) result.per_position.push_back(field.name);
    result.tensors[field.name] = std::move(tensor);
  }
  const std::int64_t length = batch.sequence_length();
  if (options.packs_documents) {
    pack_documents(batch, result);
  } else {
    if (options.document_masks)
      result.tensors["document_ids"] = tensor_of(document_ids(batch), {batch.rows, length});
    else if (result.has("padding_mask"))
      result.tensors["document_ids"] = document_ids_of(result.at("padding_mask"));
    for (const std::int64_t padding : batch.padding) result.lengths.push_back(length - padding);
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
