// Selects the samples of each batch of a data-parallel rank, as Megatron's samplers do.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace megatron {

enum class SamplerKind {
  single,  ///< in order, from consumed_samples to the end
  cyclic,  ///< endless; reshuffled each epoch with torch.randperm(seed = epoch)
};

struct SamplerOptions {
  SamplerKind kind = SamplerKind::single;
  bool repeats = false;               ///< of single: starts again at the first sample at the end
  std::int64_t total_samples = 0;     ///< size of the dataset
  std::int64_t consumed_samples = 0;  ///< samples that earlier batches took, over all ranks
  std::int64_t micro_batch_size = 1;
  std::int64_t data_parallel_rank = 0;
  std::int64_t data_parallel_size = 1;
  bool data_sharding = true;  ///< for cyclic: each rank shuffles its own part of the data
                              ///< (Megatron's default); false: all ranks share one order
};

/// The sample numbers of a batch and their ordinals in the run.
struct BatchIndices {
  std::vector<std::int64_t> samples;   ///< sample numbers in the dataset
  std::vector<std::int64_t> ordinals;  ///< per sample, the number of samples that all ranks consume
                                       ///< before it; dropout uses it as a coordinate
  std::int64_t first_ordinal = 0;      ///< smallest ordinal of this batch over all ranks
};

/// Returns the batches of one rank in order. Throws UserErrors for incompatible sizes.
class Sampler {
 public:
  explicit Sampler(SamplerOptions options);
  /// Returns the next batch; nullopt at the end of a `single` run that does not repeat. A last
  /// batch that is not full on all ranks is dropped.
  std::optional<BatchIndices> next();
  /// Returns the sample of any ordinal of a cyclic run, over all ranks.
  std::int64_t cyclic_sample(std::int64_t ordinal);

 private:
  std::int64_t micro_batch_times_data_parallel_size() const {
    return options_.micro_batch_size * options_.data_parallel_size;
  }
  std::optional<BatchIndices> next_single();
  BatchIndices next_cyclic();

  SamplerOptions options_;
  std::int64_t consumed_ = 0;
  std::int64_t epoch_ = -1;
  std::vector<std::int64_t> order_;  ///< sample order of the epoch when cyclic
};

}  // namespace megatron
