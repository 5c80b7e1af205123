// Builds the datasets of a run: decides how many samples each split needs and where each split
// starts.
#pragma once

#include <array>
#include <cstdint>
#include <iosfwd>
#include <optional>

#include "megatron/checkpoint/training_progress.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/training/feeding/training_data.h"
#include "megatron/training/loop/training_plan.h"

namespace megatron {

/// Returns the number of samples of the train, validation and test splits, as Megatron sizes them.
/// Train covers the phase of the data that follows `iteration`, which is the whole run without
/// --phase-transition-iterations. Validation covers one evaluation per --eval-interval and one at
/// the end. Test covers one evaluation. A split is 0 when it has no share in --split and no data of
/// its own; validation and test are 0 without --eval-interval unless --full-validation or
/// --skip-train requests an evaluation. nullopt means one epoch (--full-validation).
std::array<std::optional<std::int64_t>, 3> train_valid_test_num_samples(
    const Settings& settings, std::int64_t data_parallel_size = 1, std::int64_t iteration = 0);

/// Builds the datasets, which may keep the tokenizer. Training goes on after `progress`.
TrainingData build_train_valid_test_data(const TrainingPlan& plan, const TrainingProgress& progress,
                                         const std::shared_ptr<const Tokenizer>& tokenizer,
                                         std::ostream& out);

}  // namespace megatron
