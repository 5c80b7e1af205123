// The folders that a run writes to beside --save.
#pragma once

#include <string>

namespace megatron {

struct CheckpointConfig;
struct Settings;

/// Returns the folder of non-persistent checkpoints of a run that saves to (or loads from) `root`:
/// --non-persistent-local-ckpt-dir, --non-persistent-global-ckpt-dir, or root/non_persistent.
/// Returns "" without --non-persistent-ckpt-type, or if no folder is given.
std::string non_persistent_folder(const CheckpointConfig& config, const std::string& root);

/// Returns the folder where rank 0 writes metrics.jsonl; empty when it writes none.
std::string metrics_folder(const Settings& settings);

/// Returns the folder of the reports that ranks write when the run hangs; empty when they write
/// none.
std::string hang_report_folder(const Settings& settings);

}  // namespace megatron
