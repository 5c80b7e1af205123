// Divides a run into phases of its data: --phase-transition-iterations and --blend-schedule. With
// --phase-transition-iterations, each phase has a data set
// of its own, with as many samples as the phase trains on, and is a start of the program with its
// own flags (--data-path, --seq-length, rotary scaling). Equivalent to Megatron-LM's
// get_train_valid_test_num_samples() and build_train_valid_test_data_loaders().
#pragma once

#include <cstdint>
#include <vector>

namespace megatron {

struct TrainingConfig;

/// The iterations after `begin` up to and including `end`.
struct DataPhase {
  std::int64_t index = 0, count = 1;  ///< place among the phases of the run, and their number
  std::int64_t begin = 0, end = 0;    ///< in iterations
  std::int64_t num_samples = 0;       ///< samples of the phase: the size of its data set
  bool operator==(const DataPhase&) const = default;
};

/// Divides a run of resolved settings after each of these iterations, which are above 0 and below
/// --train-iters, in any order.
std::vector<DataPhase> divide_run(const TrainingConfig& training,
                                  const std::vector<std::int64_t>& iterations);

/// Returns the phase that trains on after `iteration` iterations, of resolved settings. A run
/// without --phase-transition-iterations is one phase.
DataPhase data_phase(const TrainingConfig& training, std::int64_t iteration);

/// Returns whether a phase ends after `iteration`, and the next one begins. The run stops there.
bool is_phase_transition(const TrainingConfig& training, std::int64_t iteration);

/// Returns how many samples of the phase's data set are consumed after `iteration` iterations and
/// `consumed_samples` samples of the whole run. All phases have one batch size.
std::int64_t consumed_samples_in_phase(const TrainingConfig& training, std::int64_t iteration,
                                       std::int64_t consumed_samples);

}  // namespace megatron
