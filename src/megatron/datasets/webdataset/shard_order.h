// The order in which a run takes samples of shards: a function of seed and position alone, so that
// any number of ranks and a resumed run see the same samples.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace megatron {

struct ShardOrderOptions {
  std::uint32_t seed = 1234;
  /// Samples are shuffled among this many neighbors, after whole shards were; 0: no shuffling.
  std::int64_t shuffle_window = 1000;
};

/// Thread-safe.
class ShardOrder {
 public:
  /// `shard_sizes` are the numbers of samples of the shards. Throws a UserError if all are empty.
  ShardOrder(std::vector<std::int64_t> shard_sizes, const ShardOrderOptions& options);

  /// Returns the sample at a position of the run, the number of samples consumed before it. Each
  /// epoch takes every sample once: the shards in a random order, and each window of the result
  /// shuffled. The time does not depend on the position.
  std::int64_t sample(std::int64_t position) const;

 private:
  /// The shards in the order of one epoch.
  struct Epoch {
    std::int64_t number = 0;
    std::vector<std::size_t> shards;
    std::vector<std::int64_t> begins;  ///< per place, the samples before the shard
  };
  std::shared_ptr<const Epoch> epoch(std::int64_t number) const;
  std::int64_t shuffled_place(std::int64_t epoch, std::int64_t place) const;

  std::vector<std::int64_t> begins_;  ///< per shard, its first sample; then the number of samples
  ShardOrderOptions options_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Epoch> last_;
};

}  // namespace megatron
