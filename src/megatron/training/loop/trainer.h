// The state of a training run. setup.h builds it from settings, train_loop.h runs it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/config/batch_schedule.h"
#include "megatron/config/settings.h"
#include "megatron/models/model.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/optimizer/param_scheduler.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "megatron/pipeline/pipeline_plan.h"
#include "megatron/training/feeding/data_report.h"
#include "megatron/training/feeding/microbatch_source.h"
#include "megatron/training/loop/evaluation_set.h"
#include "megatron/training/loop/rank_context.h"
#include "megatron/training/loop/run_clock.h"
#include "megatron/training/loop/startup_warnings.h"
#include "megatron/training/observability/timers.h"
#include "megatron/training/saving/save_folder.h"

namespace megatron {

struct Trainer {
  Settings settings;  ///< resolved and validated
  RankContext world;
  Rank rank;
  std::string device_name;  ///< the GPU's name as reported by the driver; empty on a CPU
  std::optional<CheckpointSource> source;  ///< the checkpoint that --load names
  /// Tokenizer files that checkpoints include; only on the rank that writes them.
  AuxiliaryFiles tokenizer_files;
  StartupWarnings warnings;  ///< repeated right before the first step
  /// Describes non-finite weights of the loaded checkpoint; empty if none.
  std::string non_finite_checkpoint;
  PipelinePlan pipeline;
  std::unique_ptr<Model> model;  ///< the stages that this rank holds
  std::unique_ptr<ParamStore> weights;
  std::unique_ptr<Optimizer> optimizer;  ///< null with --skip-train
  OptimizerParamScheduler scheduler{ParamSchedule{}};
  NumMicrobatchesCalculator batches;
  StepBatch batch;                          ///< of the current step, or of the last one
  std::unique_ptr<MicrobatchSource> train;  ///< positioned at `progress`; null with --skip-train
  std::vector<EvaluationSet> valid;
  std::optional<EvaluationSet> test;
  std::vector<SplitShare> data;  ///< share of each corpus in the whole run; only on rank 0
  std::unique_ptr<SaveFolder> save_folder, non_persistent_folder;  ///< null: not saved
  TrainingProgress progress;
  JsonValue rerun_state;  ///< state of a step that must be run again (reruns/); null: none
  double flops_per_sample = 0;
  Timers timers{0, TimerStatistic::minmax};
  RunClock clock;
  double started_s = clock.monotonic_s();

  /// FLOPs of the current step. The batch size of the next step may differ.
  double flops_per_iteration() const {
    return flops_per_sample * static_cast<double>(batch.running_batch_size);
  }
};

}  // namespace megatron
