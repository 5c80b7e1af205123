// What a --save folder holds already, and whether this run may go on in it: no run replaces another
// one's checkpoints without a word.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/training/loop/startup_warnings.h"

namespace megatron {

/// Whether this run takes up the run whose files lie in the --save folder: it loads from there, and
/// neither begins at iteration 0 with --finetune or a release, nor finds no checkpoint.
bool continues_saved_run(const CheckpointConfig& config,
                         const std::optional<CheckpointSource>& source);

/// How often the launcher has started the ranks again after a failure, and how often it may.
struct RestartCounts {
  std::int64_t count = 0, max = 0;
};

/// UserError when the checkpoints of the run would replace others below --save or in its folder of
/// non-persistent checkpoints: those that it does not continue, or later ones than it starts from.
/// Later checkpoints that latest_checkpointed_iteration.txt no longer counts are a warning, and so
/// are restarts that would be refused once the run has saved. Writes nothing. For the rank that
/// opens the folders.
void check_save_folders(const CheckpointConfig& config,
                        const std::optional<CheckpointSource>& source,
                        const RestartCounts& restarts, StartupWarnings& warnings,
                        std::ostream& out);

}  // namespace megatron
