// What a --save folder holds already, and whether this run may go on in it: no run replaces another
// one's checkpoints without a word.
#pragma once

#include <iosfwd>
#include <optional>

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/training/start_warnings.h"

namespace megatron {

/// Whether this run takes up the run whose files lie in the --save folder: it loads from there, and
/// neither begins at iteration 0 with --finetune or a release, nor finds no checkpoint.
bool continues_saved_run(const CheckpointConfig& config,
                         const std::optional<CheckpointSource>& source);

/// UserError when the checkpoints of the run would replace others below --save or in its folder of
/// non-persistent checkpoints: those of another run, or later ones than --ckpt-step goes back to.
/// Later checkpoints that latest_checkpointed_iteration.txt no longer counts are a warning. Writes
/// nothing. For the rank that opens the folders.
void check_used_folders(const CheckpointConfig& config,
                        const std::optional<CheckpointSource>& source, StartWarnings& warnings,
                        std::ostream& out);

}  // namespace megatron
