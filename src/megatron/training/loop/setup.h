// The steps of set_up() (trainer.h): settings and the place of the rank, memory, model.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>

#include "megatron/config/run_settings.h"
#include "megatron/models/model_family.h"
#include "megatron/parallel/communicators.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/training/observability/timers.h"
#include "megatron/training/run/rank_context.h"
#include "megatron/training/run/startup_warnings.h"
#include "megatron/training/run/training_plan.h"
#include "megatron/training/run/training_state.h"

namespace megatron {

struct CheckpointSource;
struct Rank;
struct Settings;

struct ResolvedRun {
  TrainingPlan plan;
  std::shared_ptr<const Tokenizer> tokenizer;
};

/// Merges flags with the checkpoint to load and the tokenizer, and places this rank in the mesh and
/// in the pipeline. Returns the plan of a run and its tokenizer. `world` must name a device. Prints
/// the mesh, the checkpoint's warnings and the measured times to `out`. UserError for every setting
/// that is invalid. Collective over the world.
ResolvedRun resolve_run(const RunConfig& run, const RankContext& world, StartupWarnings& warnings,
                        std::ostream& out);

struct BudgetContext {
  std::int64_t ranks_on_host = 1;  ///< they share the memory of the machine
  const PipelineLayout& layout;
  /// A checkpoint that the run continues; it may hold the plan.
  const std::optional<CheckpointSource>& source;
  StartupWarnings& warnings;
};

/// --memory-budget: sets the activation plan of every layer and, if none is given, the micro-batch
/// size by the run's memory budget, or takes the plan of the checkpoint that the run continues;
/// does nothing without one. Prints the choices. Throws a UserError if nothing fits. Collective
/// over the world.
void apply_memory_budget(Settings& settings, const ModelFamily& family, const Rank& rank,
                         const BudgetContext& context, std::ostream& out);

struct BuildContext {
  Communicators* communicators = nullptr;  ///< null: single rank
  Timers& timers;
  StartupWarnings& warnings;
};

/// Builds the model, the weights and the optimizer of a run, new or from a checkpoint. Fills
/// `state` part by part, so that an out-of-memory report can show what it already holds when memory
/// ends. Prints Megatron's lines to `out`. UserError when the checkpoint cannot be loaded or no
/// batch or schedule fits. Collective over the world.
void build_state(const TrainingPlan& plan, TrainingState& state, const BuildContext& context,
                 std::ostream& out);

}  // namespace megatron
