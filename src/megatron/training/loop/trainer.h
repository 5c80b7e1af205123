// A training run: set_up() builds it from settings, train() runs it. Functions and classes take the
// parts that they need instead of the whole.
#pragma once

#include <iosfwd>
#include <memory>

#include "megatron/config/run_settings.h"
#include "megatron/parallel/communicators.h"
#include "megatron/training/feeding/training_data.h"
#include "megatron/training/observability/memory_breakdown.h"
#include "megatron/training/observability/timers.h"
#include "megatron/training/resilience/section_watch.h"
#include "megatron/training/run/rank_context.h"
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

/// Resolves and validates the settings, opens the tokenizer, builds (or loads) this rank's part of
/// the model, optimizer and schedule, and builds the datasets. Prints Megatron's startup lines to
/// `out`. Throws UserError for every invalid setting. Collective over the world (setup.cpp).
Trainer set_up(const RunConfig& run, std::ostream& out, const RankContext& world = {});

/// Megatron's training loop: step, log, evaluate, save, stop. Trains until all iterations are done
/// or the run is asked to stop (SIGTERM, SIGINT, --exit-interval, --exit-duration-in-mins), and
/// saves checkpoints on the way. Log lines go to `out`. Returns the exit code: 0, or 128 + the
/// signal. Throws NonFiniteError when training diverges (train_loop.cpp).
int train(Trainer& trainer, std::ostream& out);

}  // namespace megatron
