#include "megatron/training/dataset_source.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <span>

#include "megatron/base/error.h"
#include "megatron/base/ordered_pool.h"

namespace megatron {
namespace {

constexpr std::int64_t kMicrobatchesAhead = 4;

template <class T>
void copy_row(at::Tensor& batch, std::int64_t row, const std::vector<T>& values) {
  MEGATRON_CHECK(static_cast<std::int64_t>(values.size()) == batch.size(1), "a sample of ", values.size(), " elements");
  std::copy(values.begin(), values.end(), batch.data_ptr<T>() + row * batch.size(1));
}

void fill_document_ids(at::Tensor& batch, std::int64_t row, const std::vector<std::int64_t>& starts) {
  std::int32_t* ids = batch.data_ptr<std::int32_t>() + row * batch.size(1);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::int64_t end = i + 1 < starts.size() ? starts[i + 1] : batch.size(1);
    std::fill(ids + starts[i], ids + end, static_cast<std::int32_t>(i));
  }
}

void check_ids(const std::vector<std::int64_t>& ids, const Dataset& dataset, std::int64_t index, std::int64_t vocab_size) {
  for (const std::int64_t id : ids) {
    if (id >= 0 && id < vocab_size) continue;
    throw UserError({dataset.describe(index),
                     "token id " + std::to_string(id) + " is outside the model's vocabulary of " + std::to_string(vocab_size),
                     "use the tokenizer that the data was prepared with, or a larger --vocab-size"});
  }
}

Microbatch load(const Dataset& dataset, const DatasetSourceOptions& options, std::int64_t first) {
  Microbatch batch;
  const std::int64_t samples = options.micro_batch_size;
  for (std::int64_t row = 0; row < samples; ++row) {
    const std::int64_t index = (first + row) % dataset.size();
    const Sample sample = dataset.sample(index);
    check_ids(sample.tokens, dataset, index, options.vocab_size);
    check_ids(sample.labels, dataset, index, options.vocab_size);
    if (row == 0) {
      const auto length = static_cast<std::int64_t>(sample.tokens.size());
      for (const char* name : {"tokens", "labels", "position_ids"}) batch.tensors[name] = at::empty({samples, length}, at::kLong);
      batch.tensors["loss_mask"] = at::empty({samples, length}, at::kFloat);
      if (options.document_masks) batch.tensors["document_ids"] = at::empty({samples, length}, at::kInt);
    }
    copy_row(batch.tensors["tokens"], row, sample.tokens);
    copy_row(batch.tensors["labels"], row, sample.labels);
    copy_row(batch.tensors["position_ids"], row, sample.position_ids);
    copy_row(batch.tensors["loss_mask"], row, sample.loss_mask);
    if (options.document_masks) fill_document_ids(batch.tensors["document_ids"], row, sample.document_starts);
  }
  return batch;
}

class DatasetSource : public MicrobatchSource {
 public:
  DatasetSource(std::shared_ptr<const Dataset> dataset, const DatasetSourceOptions& options)
      : dataset_(std::move(dataset)),
        options_(options),
        next_sample_(options.first_sample),
        pool_(
            {.workers = options.num_workers, .depth = kMicrobatchesAhead}, [this] { return take(); },
            [this](std::int64_t first) { return load(*dataset_, options_, first); }) {}

  Microbatch next() override {
    std::optional<Microbatch> batch = pool_.next();
    MEGATRON_CHECK(batch.has_value(), "an endless source ended");
    return std::move(*batch);
  }

 private:
  std::optional<std::int64_t> take() {
    const std::int64_t first = next_sample_;
    next_sample_ += options_.micro_batch_size;
    return first;
  }

  std::shared_ptr<const Dataset> dataset_;
  DatasetSourceOptions options_;
  std::int64_t next_sample_;
  OrderedPool<std::int64_t, Microbatch> pool_;
};

}  // namespace

std::unique_ptr<MicrobatchSource> make_dataset_source(std::shared_ptr<const Dataset> dataset, const DatasetSourceOptions& options) {
  return std::make_unique<DatasetSource>(std::move(dataset), options);
}

}  // namespace megatron
