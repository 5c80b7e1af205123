// Everything a running training owns. setup.h builds it from settings, train_loop.h runs it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/config/settings.h"
#include "megatron/models/language_model.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/optimizer/param_scheduler.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/microbatch_source.h"
#include "megatron/training/timers.h"
#include "megatron/transformer/param_store.h"

namespace megatron {

struct Trainer {
  Settings settings;  ///< resolved and valid
  Rank rank;
  std::optional<CheckpointSource> source;  ///< what --load gave
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<ParamStore> weights;
  std::unique_ptr<Optimizer> optimizer;
  OptimizerParamScheduler scheduler{ParamSchedule{}};
  std::unique_ptr<MicrobatchSource> train, valid, test;  ///< at the positions of `progress`; null: none
  TrainingProgress progress;
  double flops_per_iteration = 0;
  Timers timers{0, TimerStatistic::minmax};
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
};

}  // namespace megatron
