#include "megatron/datasets/sampler.h"

#include <string>

#include "megatron/base/error.h"
#include "megatron/datasets/random_state.h"

namespace megatron {

Sampler::Sampler(SamplerOptions options) : options_(options), consumed_(options.consumed_samples) {
  MEGATRON_CHECK(options.micro_batch_size > 0 && options.data_parallel_size > 0, "batches of ",
                 options.micro_batch_size, " on ", options.data_parallel_size, " ranks");
  MEGATRON_CHECK(
      options.data_parallel_rank >= 0 && options.data_parallel_rank < options.data_parallel_size,
      "data-parallel rank ", options.data_parallel_rank, " of ", options.data_parallel_size);
  MEGATRON_CHECK(options.consumed_samples >= 0, "consumed_samples is ", options.consumed_samples);
  if (options.total_samples < micro_batch_times_data_parallel_size())
    throw UserError({"the dataset has " + std::to_string(options.total_samples) +
                         " samples, fewer than one batch of " +
                         std::to_string(micro_batch_times_data_parallel_size()),
                     "", "use more data, or a smaller --micro-batch-size or data-parallel size"});
  if (options.kind == SamplerKind::single && options.repeats)
    consumed_ %= options.total_samples / micro_batch_times_data_parallel_size() *
                 micro_batch_times_data_parallel_size();
  if (options.kind == SamplerKind::single && consumed_ > options.total_samples)
    throw UserError(
        {std::to_string(consumed_) + " samples are consumed already, but the dataset has " +
             std::to_string(options.total_samples),
         "", "raise --train-iters or --train-samples, or use --dataloader-type cyclic"});
  if (options.kind == SamplerKind::cyclic &&
      consumed_ % micro_batch_times_data_parallel_size() != 0)
    throw UserError(
        {"--dataloader-type cyclic can resume only at a multiple of micro-batch size x "
         "data-parallel size, " +
             std::to_string(micro_batch_times_data_parallel_size()),
         std::to_string(consumed_) + " samples are consumed", ""});
}

std::optional<BatchIndices> Sampler::next() {
  if (options_.kind == SamplerKind::cyclic) return next_cyclic();
  return next_single();
}

std::optional<BatchIndices> Sampler::next_single() {
  if (consumed_ + micro_batch_times_data_parallel_size() > options_.total_samples) {
    if (!options_.repeats) return std::nullopt;
    consumed_ = 0;
  }
  BatchIndices batch{.first_ordinal = consumed_};
  const std::int64_t first = consumed_ + options_.data_parallel_rank * options_.micro_batch_size;
  for (std::int64_t row = 0; row < options_.micro_batch_size; ++row)
    batch.samples.push_back(first + row);
  batch.ordinals = batch.samples;
  consumed_ += micro_batch_times_data_parallel_size();
  return batch;
}

BatchIndices Sampler::next_cyclic() {
  BatchIndices batch{.first_ordinal = consumed_};
  for (std::int64_t row = 0; row < options_.micro_batch_size; ++row) {
    const std::int64_t column =
        options_.data_sharding ? options_.data_parallel_rank * options_.micro_batch_size + row
                               : row * options_.data_parallel_size + options_.data_parallel_rank;
    batch.ordinals.push_back(consumed_ + column);
    batch.samples.push_back(cyclic_sample(consumed_ + column));
  }
  consumed_ += micro_batch_times_data_parallel_size();
  return batch;
}

std::int64_t Sampler::cyclic_sample(std::int64_t ordinal) {
  const std::int64_t round = micro_batch_times_data_parallel_size(),
                     batches = options_.total_samples / round, epoch = ordinal / (batches * round),
                     place = ordinal % (batches * round);
  if (epoch != epoch_) {
    const std::int64_t shared =
        options_.total_samples / options_.micro_batch_size * options_.micro_batch_size;
    order_ = torch_randperm(options_.data_sharding ? batches * options_.micro_batch_size : shared,
                            static_cast<std::uint64_t>(epoch));
    epoch_ = epoch;
  }
  if (!options_.data_sharding) return order_[static_cast<std::size_t>(place)];
  const std::int64_t rank = place % round / options_.micro_batch_size,
                     row = place / round * options_.micro_batch_size +
                           place % options_.micro_batch_size;
  return rank * std::ssize(order_) + order_[static_cast<std::size_t>(row)];
}

}  // namespace megatron
