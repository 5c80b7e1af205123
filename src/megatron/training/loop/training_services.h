// What a training run uses but does not compute with: data, clocks, timers, folders, communicators.
#pragma once

#include <memory>

#include "megatron/parallel/communicators.h"
#include "megatron/training/feeding/training_data.h"
#include "megatron/training/observability/memory_breakdown.h"
#include "megatron/training/observability/timers.h"
#include "megatron/training/resilience/section_watch.h"
#include "megatron/training/run/run_clock.h"
#include "megatron/training/run/startup_warnings.h"
#include "megatron/training/saving/save_folders.h"

namespace megatron {

struct TrainingServices {
  Communicators* communicators = nullptr;  ///< null: single rank; must outlive the run
  StartupWarnings warnings = {};           ///< repeated right before the first step
  TrainingData data = {};
  SaveFolders folders = {};
  Timers timers{0, TimerStatistic::minmax};
  /// Never null.
  std::shared_ptr<SectionWatch> sections = std::make_shared<SectionWatch>();
  RunClock clock = {};
  HostMemory memory_before_model = {};     ///< of the program and its libraries; with --log-memory
  double started_s = clock.monotonic_s();  ///< start of the run on the monotonic clock
};

}  // namespace megatron
