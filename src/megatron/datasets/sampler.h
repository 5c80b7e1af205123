// Which samples each batch of a data-parallel rank holds, as Megatron's samplers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace megatron {

enum class SamplerKind {
  single,  ///< in order, from consumed_samples to the end
  cyclic,  ///< shuffled anew each epoch with torch.randperm(seed = epoch), without end
};

struct SamplerOptions {
  SamplerKind kind = SamplerKind::single;
  std::int64_t total_samples = 0;     ///< size of the dataset
  std::int64_t consumed_samples = 0;  ///< samples of all ranks that earlier batches took
  std::int64_t micro_batch_size = 1;
  std::int64_t data_parallel_rank = 0;
  std::int64_t data_parallel_size = 1;
  bool data_sharding = true;  ///< cyclic: each rank shuffles its own part of the data (Megatron's
                              ///< default); false: all share one order
};

/// A batch's samples and their places in the run.
struct BatchIndices {
  std::vector<std::int64_t> samples;   ///< numbers in the dataset
  std::vector<std::int64_t> ordinals;  ///< consumed_samples counted over all ranks when each
                                       ///< sample's turn comes: coordinates of dropout
  std::int64_t first_ordinal = 0;      ///< of the batches that all ranks take at this time
};

/// Gives the batches of one rank in order. UserErrors on sizes that cannot work.
class Sampler {
 public:
  explicit Sampler(SamplerOptions options);
  /// The next batch; nothing at the end of a `single` run. A last batch that is not full on all
  /// ranks is left out.
  std::optional<BatchIndices> next();

 private:
  std::int64_t micro_batch_times_data_parallel_size() const {
    return options_.micro_batch_size * options_.data_parallel_size;
  }
  std::optional<BatchIndices> next_single();
  BatchIndices next_cyclic();
  std::int64_t cyclic_sample(std::int64_t place, std::int64_t row);

  SamplerOptions options_;
  std::int64_t consumed_ = 0;
  std::int64_t epoch_ = -1;
  std::vector<std::int64_t> order_;  ///< of the epoch, when cyclic
};

}  // namespace megatron
