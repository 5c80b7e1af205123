// Everything a running training owns. setup.h builds it from settings, train_loop.h runs it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/config/batch_schedule.h"
#include "megatron/config/settings.h"
#include "megatron/models/language_model.h"
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
  Settings settings;  ///< resolved and valid
  RankContext world;
  Rank rank;
  std::string device_name;                 ///< the GPU's, as its driver gives it; empty on a CPU
  std::optional<CheckpointSource> source;  ///< what --load gave
  AuxiliaryFiles tokenizer_files;  ///< of the run's tokenizer, for its checkpoints; only on the
                                   ///< rank that writes them
  StartupWarnings warnings;           ///< repeated right before training
  std::string non_finite_checkpoint;  ///< which of its weights are not finite; empty: none
  PipelinePlan pipeline;
  std::unique_ptr<LanguageModel> model;  ///< the stages that this rank holds
  std::unique_ptr<ParamStore> weights;
  std::unique_ptr<Optimizer> optimizer;  ///< null with --skip-train
  OptimizerParamScheduler scheduler{ParamSchedule{}};
  NumMicrobatchesCalculator batches;
  StepBatch batch;  ///< of the step in progress, or of the last one
  std::unique_ptr<MicrobatchSource>
      train;  ///< at the position of `progress`; null with --skip-train
  std::vector<EvaluationSet> valid;
  std::optional<EvaluationSet> test;
  std::vector<SplitShare> data;  ///< how much of which corpus the whole run takes; on rank 0
  std::unique_ptr<SaveFolder> save_folder, non_persistent_folder;  ///< null: nothing is saved there
  TrainingProgress progress;
  JsonValue rerun_state;  ///< of a step that is to be run again (reruns/); null: none
  double flops_per_sample = 0;
  Timers timers{0, TimerStatistic::minmax};
  RunClock clock;
  double started_s = clock.monotonic_s();

  /// Of the step in progress, whose batch may differ from the next one's.
  double flops_per_iteration() const {
    return flops_per_sample * static_cast<double>(batch.running_batch_size);
  }
};

}  // namespace megatron
