// Saves and loads the state of a training run and prints Megatron's lines around it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

#include "megatron/training/observability/timers.h"
#include "megatron/training/run/startup_warnings.h"
#include "megatron/training/run/training_state.h"
#include "megatron/training/saving/save_folders.h"

namespace megatron {

class BackgroundSave;
struct LocalPlacement;
struct TrainingPlan;

/// Loads the weights from plan.source. Also loads progress, optimizer state and schedule unless
/// flags or the kind of checkpoint exclude them.
void load_training_state(const TrainingPlan& plan, TrainingState& state, Timers& timers,
                         StartupWarnings& warnings, std::ostream& out);

/// Where a checkpoint goes, and the timer that measures the save.
struct SaveTarget {
  SaveFolder& folder;
  Timers& timers;
  std::string_view timer;  ///< a literal, which is printed with the elapsed time
  /// The folders of a local checkpoint; null: all ranks share `folder`.
  const LocalPlacement* placement = nullptr;
  /// Called on every rank after the weights have been read. If it throws, the checkpoint is not
  /// completed.
  std::function<void()> before_commit = {};
  /// Writes the checkpoint while training goes on; null: the call does.
  BackgroundSave* background = nullptr;
};

/// Saves the state at its current iteration, or starts to. UserError when the save fails.
/// Collective over the world.
void save_training_state(const TrainingPlan& plan, const TrainingState& state,
                         const SaveTarget& target, std::ostream& out);

/// Prints that the checkpoint of an iteration is complete.
void print_saved(const TrainingPlan& plan, std::int64_t iteration,
                 const std::filesystem::path& root, std::ostream& out);

}  // namespace megatron
