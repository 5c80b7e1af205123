// The data of a training run: its training microbatches and the sets that it is evaluated on.
// Builds the datasets and decides where each split starts.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/checkpoint/training_progress.h"
#include "megatron/datasets/blend_phases.h"
#include "megatron/datasets/builder.h"
#include "megatron/datasets/data_report.h"
#include "megatron/datasets/sample_counts.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/training/feeding/microbatch_source.h"

namespace megatron {

struct TrainingPlan;

/// A set of samples that the model is evaluated on: a validation set or the test set.
struct EvaluationSet {
  /// "", or "-<name>" or "-<index>" when there are several validation sets
  std::string suffix = {};
  std::int64_t num_microbatches = 0;  ///< per evaluation
  std::int64_t num_samples = 0;       ///< per evaluation
  bool is_full_validation = false;    ///< each evaluation starts at the first sample
  std::function<std::unique_ptr<MicrobatchSource>(std::int64_t first_sample)> open = {};
};

struct TrainingData {
  /// Starts at the first sample that the run has not consumed; null with --skip-train.
  std::unique_ptr<MicrobatchSource> train = {};
  std::vector<EvaluationSet> valid = {};
  std::optional<EvaluationSet> test = {};
  BlendSchedule mixtures = {};  ///< of --blend-schedule
  /// Share of each corpus in the whole run, or in this phase of its data; only on rank 0.
  std::vector<SplitShare> shares = {};
};

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
