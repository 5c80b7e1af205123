// The data of a training run: its training microbatches and the sets that it is evaluated on.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "megatron/datasets/blend_phases.h"
#include "megatron/datasets/data_report.h"
#include "megatron/training/feeding/evaluation_set.h"
#include "megatron/training/feeding/microbatch_source.h"

namespace megatron {

struct TrainingData {
  /// Starts at the first sample that the run has not consumed; null with --skip-train.
  std::unique_ptr<MicrobatchSource> train = {};
  std::vector<EvaluationSet> valid = {};
  std::optional<EvaluationSet> test = {};
  BlendSchedule mixtures = {};  ///< of --blend-schedule
  /// Share of each corpus in the whole run, or in this phase of its data; only on rank 0.
  std::vector<SplitShare> shares = {};
};

}  // namespace megatron
