#include "megatron/training/feeding/dataset_source.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <variant>

#include "megatron/base/error.h"
#include "megatron/training/feeding/prefetch_source.h"

namespace megatron {
namespace {

/// Lines up the documents of all rows in one row. Each gets the values that its sample has without
/// positions.
void pack_documents(const Batch& batch, Microbatch& microbatch) {
  PackedSequences packed{.cu_seqlens = {}, .num_samples = batch.rows};
  std::vector<std::int64_t> ordinals, rows;
  microbatch.lengths.clear();
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

/// Lines up the tokens of all samples in one row, without the padding behind them. Rows of padding
/// that are needed for a multiple of `row_multiple` rows follow as a sequence of their own.
void leave_out_padding(const Batch& batch, std::int64_t row_multiple, Microbatch& microbatch) {
  const std::int64_t length = batch.sequence_length();
  PackedSequences packed{
      .cu_seqlens = {0}, .num_samples = batch.rows, .padded_length = length, .hybrid = {}};
  std::vector<std::int64_t> rows, padding;
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    std::int64_t& tokens = microbatch.lengths[static_cast<std::size_t>(row)];
    tokens = std::max<std::int64_t>(tokens, 1);  // no sequence is empty
    for (std::int64_t i = 0; i < length; ++i)
      (i < tokens ? rows : padding).push_back(row * length + i);
    packed.cu_seqlens.push_back(std::ssize(rows));
  }
  if (const std::int64_t rest = std::ssize(rows) % row_multiple; rest > 0) {
    MEGATRON_CHECK(row_multiple - rest <= std::ssize(padding), batch.rows, " samples of ", length,
                   " positions in rows of a multiple of ", row_multiple);
    rows.insert(rows.end(), padding.begin(), padding.begin() + (row_multiple - rest));
    packed.cu_seqlens.push_back(std::ssize(rows));
    microbatch.lengths.push_back(0);
    const at::Tensor& ordinals = microbatch.sample_ordinals;
    microbatch.sample_ordinals = at::cat({ordinals, ordinals.narrow(0, batch.rows - 1, 1)});
  }
  const at::Tensor kept = at::tensor(rows, at::kLong);
  for (const std::string& name : microbatch.per_position) {
    at::Tensor& tensor = microbatch.tensors.at(name);
    tensor = at::index_select(tensor.flatten(0, 1), 0, kept).unsqueeze(0);
  }
  microbatch.tensors.erase("document_ids");
  microbatch.packed = std::move(packed);
}

Microbatch to_microbatch(const Batch& batch, const DatasetSourceOptions& options) {
  Microbatch result;
  result.per_position.clear();
  for (std::size_t i = 0; i < batch.values.size(); ++i) {
    const SampleField& field = (*batch.fields)[i];
    std::vector<std::int64_t> shape = field.shape;
    shape.insert(shape.begin(), batch.rows);
    result.tensors[field.name] = tensor_of(batch.values[i], shape);
    if (field.per_position) result.per_position.push_back(field.name);
  }
  // Indices into the samples that all data-parallel ranks take in this step.
  result.sample_ordinals =
      at::tensor(batch.indices.ordinals, at::kLong) - batch.indices.first_ordinal;
  const std::int64_t length = batch.sequence_length();
  for (const auto& documents : batch.documents) {
    std::int64_t& tokens = result.lengths.emplace_back(0);
    for (const BatchDocument& document : documents) tokens += document.num_tokens;
  }
  const bool is_padded = std::ranges::count(result.lengths, length) < batch.rows;
  if (options.packs_documents) {
    pack_documents(batch, result);
  } else if (is_padded && options.unpadded_row_multiple > 0 &&
             (result.has("padding_mask") || result.has("class"))) {
    leave_out_padding(batch, options.unpadded_row_multiple, result);
  } else {
    if (result.has("position_ids")) {  // compared here, so that the device need not
      const std::vector<std::int64_t>& ids = batch.get("position_ids");
      if (std::equal(ids.begin() + std::ssize(ids) / batch.rows, ids.end(), ids.begin()))
        result.tensors["position_ids"] = result.at("position_ids").narrow(0, 0, 1);
    }
    if (options.document_masks)
      result.tensors["document_ids"] = tensor_of(document_ids(batch), {batch.rows, length});
    else if (result.has("padding_mask"))  // which has the id of the padding token there
      result.tensors["document_ids"] = document_ids_of(result.lengths, length);
  }
  if (!is_padded) result.lengths.clear();
  return result;
}

class DatasetSource : public MicrobatchSource {
 public:
  DatasetSource(const std::shared_ptr<const Dataset>& dataset, const DatasetSourceOptions& options)
      : options_(options), batches_(dataset, options.loader) {}

  /// What is prefetched are the rows of this rank, not those of whole sequences.
  Microbatch next() override {
    return context_slice(to_microbatch(batches_.next().value(), options_), options_.context_rank,
                         options_.context_ranks);
  }

 private:
  DatasetSourceOptions options_;
  DataLoader batches_;
};

}  // namespace

std::unique_ptr<MicrobatchSource> make_dataset_source(const std::shared_ptr<const Dataset>& dataset,
                                                      DatasetSourceOptions options) {
  options.loader.sampler.repeats = true;
  return make_prefetch_source(
      options.hybrid ? make_hybrid_context_source(dataset, options)
                     : std::make_unique<DatasetSource>(dataset, options),
      {.device = options.device, .in_thread = options.loader.num_workers > 0});
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
