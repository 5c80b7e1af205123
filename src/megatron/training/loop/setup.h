// Builds a trainer from settings.
#pragma once

#include <iosfwd>

#include "megatron/config/run_settings.h"
#include "megatron/training/loop/trainer.h"
#include "megatron/training/run/rank_context.h"

namespace megatron {

/// Resolves and validates the settings, opens the tokenizer, builds (or loads) this rank's part of
/// the model, optimizer and schedule, and builds the datasets. Prints Megatron's startup lines to
/// `out`. Throws UserError for every invalid setting. Collective over the world.
Trainer set_up(const RunConfig& run, std::ostream& out, const RankContext& world = {});

}  // namespace megatron
