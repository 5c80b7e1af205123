// From settings to a trainer that is ready to run.
#pragma once

#include <iosfwd>

#include "megatron/config/run_settings.h"
#include "megatron/training/loop/rank_context.h"
#include "megatron/training/loop/trainer.h"

namespace megatron {

/// Resolves and checks the settings, opens the tokenizer, builds (or loads) this rank's part of
/// model, optimizer and schedule, and the datasets, printing Megatron's lines to `out`. UserErrors
/// for every mistake. Collective over the world.
Trainer set_up(const RunConfig& run, std::ostream& out, const RankContext& world = {});

}  // namespace megatron
