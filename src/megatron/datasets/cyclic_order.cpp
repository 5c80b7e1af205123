#include "megatron/datasets/cyclic_order.h"

#include <optional>

#include "megatron/base/error.h"

namespace megatron {

CyclicOrder::CyclicOrder(const SamplerOptions& options)
    : round_(static_cast<std::size_t>(options.micro_batch_size * options.data_parallel_size)) {
  const auto round = static_cast<std::int64_t>(round_.size());
  SamplerOptions of_rank = options;
  of_rank.kind = SamplerKind::cyclic;
  of_rank.consumed_samples -= options.consumed_samples % round;
  for (of_rank.data_parallel_rank = 0; of_rank.data_parallel_rank < options.data_parallel_size;
       ++of_rank.data_parallel_rank)
    ranks_.emplace_back(of_rank);
  take_round();
  at_ = static_cast<std::size_t>(options.consumed_samples % round);
}

std::int64_t CyclicOrder::next() {
  if (at_ == round_.size()) take_round();
  return round_[at_++];
}

void CyclicOrder::take_round() {
  for (Sampler& rank : ranks_) {
    const std::optional<BatchIndices> batch = rank.next();
    MEGATRON_CHECK(batch.has_value(), "a cyclic order has no end");
    for (std::size_t row = 0; row < batch->samples.size(); ++row)
      round_[static_cast<std::size_t>(batch->ordinals[row] - batch->first_ordinal)] =
          batch->samples[row];
  }
  at_ = 0;
}

}  // namespace megatron
