// How many samples and microbatches a step takes, as a function of the samples consumed so far:
// constant (--global-batch-size), ramped
// (--rampup-batch-size) or stepwise (--step-batch-size-schedule). Megatron Core's
// num_microbatches_calculator, without its state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/config/settings.h"

namespace megatron {

inline constexpr std::int64_t kMaxRampIncrements = 1'000'000;

/// The batch of one step, in samples of all data-parallel ranks together.
struct StepBatch {
  std::int64_t global_batch_size = 0;  ///< what the schedule asks for
  std::int64_t running_batch_size =
      0;  ///< what the step trains on: less only with --decrease-batch-size-if-needed
  std::int64_t num_microbatches = 0;  ///< of each rank
  bool operator==(const StepBatch&) const = default;
};

/// From `first_sample` consumed samples on, steps take `batch_size`.
struct BatchSizeStep {
  std::int64_t first_sample = 0, batch_size = 0;
  bool operator==(const BatchSizeStep&) const = default;
};

/// Reads "0:768 250B:1536": thresholds in tokens with suffixes K, M, B, T, turned into samples of
/// `seq_length` tokens. UserError for a schedule that is empty, does not start at 0, does not rise,
/// or has a threshold or size that is no number.
std::vector<BatchSizeStep> parse_batch_size_steps(const std::string& text, std::int64_t seq_length);

class NumMicrobatchesCalculator {
 public:
  NumMicrobatchesCalculator() = default;
  /// From the batch flags, resolved or not; UserError when the step schedule cannot be read or the
  /// ramp has too many increments.
  explicit NumMicrobatchesCalculator(const TrainingConfig& training,
                                     std::int64_t data_parallel_size = 1);

  /// The batch of the step that follows `consumed_samples`.
  StepBatch at(std::int64_t consumed_samples) const;
  /// The batch size that remains at the end.
  std::int64_t final_batch_size() const { return final_batch_size_; }
  bool is_constant() const { return !ramp_ && steps_.empty(); }

  /// Samples of the first `iterations` steps, as the schedule asks for them: the unit of learning
  /// rate schedules and data sets.
  std::int64_t samples_after(std::int64_t iterations) const;
  /// Iterations of a run over `samples`, as Megatron's update_train_iters: a last batch that is not
  /// full is left out after a constant stretch, and trained on in full within a ramp or step
  /// schedule.
  std::int64_t iterations_for(std::int64_t samples) const;
  /// The first size not divisible by micro batch size × data-parallel size that steps from
  /// `consumed_samples` on can have.
  std::optional<std::int64_t> indivisible_size(std::int64_t consumed_samples) const;

 private:
  struct Ramp {
    std::int64_t start = 0, increment = 0, samples = 0;
    double samples_per_increment = 0;
  };
  std::int64_t ramped_size(std::int64_t consumed_samples) const;
  std::int64_t size_at(std::int64_t consumed_samples) const;
  /// The least number of consumed samples above `consumed_samples` at which the size is another
  /// one.
  std::optional<std::int64_t> next_change(std::int64_t consumed_samples) const;
  /// Steps of one size from `consumed` on until `end` or the next change; adds their samples to
  /// `consumed`.
  std::int64_t take_steps(std::int64_t& consumed, std::int64_t end) const;

  std::int64_t samples_per_microbatch_ = 1;  ///< of all ranks
  std::int64_t final_batch_size_ = 1;
  bool decrease_if_needed_ = false;
  std::optional<Ramp> ramp_;
  std::vector<BatchSizeStep> steps_;
};

}  // namespace megatron
