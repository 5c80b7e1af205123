// A training run. setup.h builds it from settings, train_loop.h runs it. Functions and classes take
// the parts that they need instead of the whole.
#pragma once

#include <memory>

#include "megatron/parallel/communicators.h"
#include "megatron/training/feeding/training_data.h"
#include "megatron/training/observability/memory_breakdown.h"
#include "megatron/training/observability/timers.h"
#include "megatron/training/resilience/section_watch.h"
#include "megatron/training/run/run_clock.h"
#include "megatron/training/run/startup_warnings.h"
#include "megatron/training/run/training_plan.h"
#include "megatron/training/run/training_state.h"
#include "megatron/training/saving/save_folders.h"

namespace megatron {

struct Trainer {
  const TrainingPlan plan;
  TrainingState state;
  Communicators* communicators = nullptr;  ///< null: single rank; must outlive the run
  RunClock clock;
  Timers timers;
  std::unique_ptr<SectionWatch> sections;  ///< never null
  StartupWarnings warnings;                ///< repeated right before the first step
  SaveFolders folders;
  HostMemory memory_before_model;  ///< of the program and its libraries; with --log-memory
  TrainingData data = {};
};

}  // namespace megatron
