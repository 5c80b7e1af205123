// Builds the datasets of a run and decides where each split starts.
#pragma once

#include <iosfwd>
#include <memory>

#include "megatron/checkpoint/training_progress.h"
#include "megatron/datasets/builder.h"
#include "megatron/datasets/sample_counts.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/training/feeding/training_data.h"

namespace megatron {

struct TrainingPlan;

struct SampleSource {
  std::shared_ptr<const Tokenizer> tokenizer;  ///< the datasets may keep it
  DatasetBuilder external = {};                ///< of --dataloader-type external, and only then
};

/// Builds the datasets. Training continues after `progress`. Throws a UserError for
/// --dataloader-type external without a function that makes the datasets, and for such a function
/// with another type.
TrainingData build_train_valid_test_data(const TrainingPlan& plan, const TrainingProgress& progress,
                                         const SampleSource& source, std::ostream& out);

}  // namespace megatron
