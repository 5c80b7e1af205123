// Checks the contents of the --save folder before training, so that no run silently overwrites the
// checkpoints of another run.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>

#include "megatron/checkpoint/manifest.h"
#include "megatron/training/run/startup_warnings.h"

namespace megatron {

struct CheckpointSource;
struct CheckpointConfig;

/// Returns whether this run continues the run whose files are in the --save folder: it loads a
/// checkpoint from there and does not restart at iteration 0 (--finetune or a release checkpoint).
bool continues_saved_run(const CheckpointConfig& config,
                         const std::optional<CheckpointSource>& source);

/// Returns whether a checkpoint is one of the run that `config` starts or continues: they name one
/// --save folder. Folders of local checkpoints may hold those of other runs.
bool is_of_run(const Manifest& manifest, const CheckpointConfig& config);

/// How many times the launcher has restarted the ranks after a failure, and the maximum.
struct RestartCounts {
  std::int64_t count = 0, max = 0;
};

/// Throws UserError when the run would remove checkpoints of another run, or later ones than it
/// starts from, from the folder of non-persistent checkpoints, and warns of restarts like
/// check_save_folders(). A folder of local checkpoints may hold later ones, which were found
/// incomplete; those of other runs then only cause a warning on a restart. Call it on the rank that
/// opens the folder.
void check_non_persistent_folder(const CheckpointConfig& config,
                                 const std::optional<CheckpointSource>& source,
                                 const RestartCounts& restarts, StartupWarnings& warnings,
                                 std::ostream& out);

/// Throws UserError when this run would overwrite checkpoints in --save or in its folder of
/// non-persistent checkpoints that it does not continue, or that are later than its starting point.
/// Warns about later checkpoints that latest_checkpointed_iteration.txt does not count, and about
/// restarts that would be refused once the run has saved. Folders of local checkpoints are left to
/// check_non_persistent_folder(). Writes nothing. Call it on the rank that opens the folders.
void check_save_folders(const CheckpointConfig& config,
                        const std::optional<CheckpointSource>& source,
                        const RestartCounts& restarts, StartupWarnings& warnings,
                        std::ostream& out);

}  // namespace megatron
