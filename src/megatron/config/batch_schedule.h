// Computes the batch size and the number of microbatches of a step from the samples consumed so
// far: constant (--global-batch-size), ramped (--rampup-batch-size) or stepwise
// (--step-batch-size-schedule). Equivalent to Megatron Core's num_microbatches_calculator, but
// without state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {

struct TrainingConfig;

inline constexpr std::int64_t kMaxRampIncrements = 1'000'000;

/// The batch of one step. Sizes are in samples over all data-parallel ranks.
struct StepBatch {
  std::int64_t global_batch_size = 0;  ///< batch size of the schedule
  /// Batch size that the step trains on. It is smaller than global_batch_size only with
  /// --decrease-batch-size-if-needed.
  std::int64_t running_batch_size = 0;
  std::int64_t num_microbatches = 0;  ///< microbatches per rank
  bool operator==(const StepBatch&) const = default;
};

/// The batch size is `batch_size` once `first_sample` samples are consumed.
struct BatchSizeStep {
  std::int64_t first_sample = 0, batch_size = 0;
  bool operator==(const BatchSizeStep&) const = default;
};

/// Parses a schedule such as "0:768 250B:1536". Thresholds are in tokens, with optional suffixes K,
/// M, B and T, and are converted to samples of `seq_length` tokens. Throws a UserError if the
/// schedule is empty, does not start at 0, does not increase, or contains an invalid number.
std::vector<BatchSizeStep> parse_batch_size_steps(const std::string& text, std::int64_t seq_length);

/// The batch size schedule of a run.
class NumMicrobatchesCalculator {
 public:
  NumMicrobatchesCalculator() = default;
  /// Reads the batch flags, resolved or not. Throws a UserError if the step schedule cannot be
  /// parsed or the ramp has more than kMaxRampIncrements increments.
  explicit NumMicrobatchesCalculator(const TrainingConfig& training,
                                     std::int64_t data_parallel_size = 1);

  /// Returns the batch of the step that starts after `consumed_samples` samples.
  StepBatch at(std::int64_t consumed_samples) const;
  /// Returns the last batch size of the schedule.
  std::int64_t final_batch_size() const { return final_batch_size_; }
  bool is_constant() const { return !ramp_ && steps_.empty(); }

  /// Returns the number of samples of the first `iterations` steps with the schedule's batch sizes.
  /// Learning rate schedules and data sets use this unit.
  std::int64_t samples_after(std::int64_t iterations) const;
  /// Returns the number of iterations of a run over `samples`, as Megatron's update_train_iters. An
  /// incomplete last batch is dropped if the batch size is constant, and counts as a full batch
  /// within a ramp or step schedule.
  std::int64_t iterations_for(std::int64_t samples) const;
  /// Returns the first batch size after `consumed_samples` samples that is not divisible by micro
  /// batch size × data-parallel size, or nullopt if there is none.
  std::optional<std::int64_t> indivisible_size(std::int64_t consumed_samples) const;

 private:
  struct Ramp {
    std::int64_t start = 0, increment = 0, samples = 0;
    double samples_per_increment = 0;
  };
  std::int64_t ramped_size(std::int64_t consumed_samples) const;
  std::int64_t size_at(std::int64_t consumed_samples) const;
  /// Returns the next number of consumed samples at which the batch size changes.
  std::optional<std::int64_t> next_change(std::int64_t consumed_samples) const;
  /// Returns the number of steps of one size from `consumed` to `end` or to the next change, and
  /// adds their samples to `consumed`.
  std::int64_t take_steps(std::int64_t& consumed, std::int64_t end) const;

  std::int64_t samples_per_microbatch_ = 1;  ///< over all data-parallel ranks
  std::int64_t final_batch_size_ = 1;
  bool decrease_if_needed_ = false;
  std::optional<Ramp> ramp_;
  std::vector<BatchSizeStep> steps_;
};

}  // namespace megatron
