// Resolves the settings of a run: merges flags with the checkpoint to load and the tokenizer, and
// places this rank in the mesh and in the pipeline.
#pragma once

#include <iosfwd>
#include <memory>

#include "megatron/config/run_settings.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/training/run/rank_context.h"
#include "megatron/training/run/startup_warnings.h"
#include "megatron/training/run/training_plan.h"

namespace megatron {

struct ResolvedRun {
  TrainingPlan plan;
  std::shared_ptr<const Tokenizer> tokenizer;
};

/// Returns the plan of a run and its tokenizer. `world` must name a device. Prints the mesh, the
/// checkpoint's warnings and the measured times to `out`. UserError for every setting that is
/// invalid. Collective over the world.
ResolvedRun resolve_run(const RunConfig& run, const RankContext& world, StartupWarnings& warnings,
                        std::ostream& out);

}  // namespace megatron
