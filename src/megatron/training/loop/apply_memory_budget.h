// --memory-budget: turns a budget into a plan for the activations of every layer, or takes the plan
// of the checkpoint that the run continues.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>

#include "megatron/models/model_family.h"
#include "megatron/training/run/startup_warnings.h"

namespace megatron {

struct CheckpointSource;
struct Rank;
struct Settings;

struct BudgetContext {
  std::int64_t ranks_on_host = 1;  ///< they share the memory of the machine
  const PipelineLayout& layout;
  /// A checkpoint that the run continues; it may hold the plan.
  const std::optional<CheckpointSource>& source;
  StartupWarnings& warnings;
};

/// Sets the activation plan and, if none is given, the micro-batch size by the run's memory budget;
/// does nothing without one.
/// Prints the choices. Throws a UserError if nothing fits. Collective over the world.
void apply_memory_budget(Settings& settings, const ModelFamily& family, const Rank& rank,
                         const BudgetContext& context, std::ostream& out);

}  // namespace megatron
