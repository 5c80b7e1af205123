// Builds the datasets of a run and decides where each split starts.
#pragma once

#include <iosfwd>
#include <memory>

#include "megatron/checkpoint/training_progress.h"
#include "megatron/datasets/sample_counts.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/training/feeding/training_data.h"
#include "megatron/training/loop/training_plan.h"

namespace megatron {

/// Builds the datasets, which may keep the tokenizer. Training goes on after `progress`.
TrainingData build_train_valid_test_data(const TrainingPlan& plan, const TrainingProgress& progress,
                                         const std::shared_ptr<const Tokenizer>& tokenizer,
                                         std::ostream& out);

}  // namespace megatron
