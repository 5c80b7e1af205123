#include "megatron/datasets/data_loader.h"

#include <algorithm>
#include <string>

#include "megatron/base/error.h"

namespace megatron {
namespace {

void check_ids(const std::vector<std::int64_t>& ids, std::int64_t vocab_size,
               const Dataset& dataset, std::int64_t index) {
  const auto outside = [&](std::int64_t id) { return id < 0 || id >= vocab_size; };
  bool any = false;
  for (const std::int64_t id : ids) any |= outside(id);
  if (!any) return;
  const auto first = std::find_if(ids.begin(), ids.end(), outside);
  throw UserError({dataset.describe(index) + ": token id " + std::to_string(*first) +
                       " at position " + std::to_string(first - ids.begin()) +
                       " is outside the model's vocabulary of " + std::to_string(vocab_size),
                   "", "use the tokenizer that made the dataset, or raise --vocab-size"});
}

std::vector<BatchDocument> documents_of(const Sample& sample) {
  const std::vector<std::int64_t>&starts = sample.document_starts, &padding = sample.padding;
  const std::int64_t length = sample.sequence_length();
  std::vector<BatchDocument> documents;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::int64_t begin = starts[i], end = i + 1 < starts.size() ? starts[i + 1] : length,
                       padded = std::ranges::lower_bound(padding, end) -
                                std::ranges::lower_bound(padding, begin);
    documents.push_back({begin, end - begin, end - begin - padded});
  }
  return documents;
}

}  // namespace

Batch make_batch(const Dataset& dataset, BatchIndices indices, std::int64_t vocab_size) {
  Batch batch{FieldBuffers(dataset.fields()), std::ssize(indices.samples)};
  for (const std::int64_t index : indices.samples) {
    const Sample sample = dataset.sample(index);
    for (std::size_t i = 0; i < batch.values.size(); ++i) {
      const SampleField& field = (*batch.fields)[i];
      std::visit(
          [&](auto& values) {
            const auto& row = std::get<std::decay_t<decltype(values)>>(sample.values[i]);
            values.reserve(row.size() * indices.samples.size());
            values.insert(values.end(), row.begin(), row.end());
          },
          batch.values[i]);
      if (vocab_size > 0 && field.holds_tokens)
        check_ids(std::get<std::vector<std::int64_t>>(sample.values[i]), vocab_size, dataset,
                  index);
    }
    batch.documents.push_back(documents_of(sample));
  }
  batch.indices = std::move(indices);
  return batch;
}

std::vector<std::int32_t> document_ids(const Batch& batch) {
  const std::int64_t length = batch.sequence_length();
  std::vector<std::int32_t> ids(static_cast<std::size_t>(batch.rows * length), 0);
  auto row_begin = ids.begin();
  for (const auto& documents : batch.documents) {
    std::int32_t number = 0;
    for (const BatchDocument& document : documents)
      std::fill_n(row_begin + document.begin, document.length, number++);
    row_begin += length;
  }
  return ids;
}

DataLoader::DataLoader(const std::shared_ptr<const Dataset>& dataset, DataLoaderOptions options) {
  options.sampler.total_samples = dataset->size();
  auto sampler = std::make_shared<Sampler>(options.sampler);
  pool_ = std::make_unique<OrderedPool<BatchIndices, Batch>>(
      OrderedPoolOptions{
          .workers = options.num_workers,
          .depth = std::max<std::int64_t>(1, options.num_workers * options.prefetch_factor)},
      [sampler] { return sampler->next(); },
      [dataset, vocab_size = options.vocab_size](BatchIndices indices) {
        return make_batch(*dataset, std::move(indices), vocab_size);
      });
}

}  // namespace megatron
