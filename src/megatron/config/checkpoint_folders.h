// Finds the folder of non-persistent checkpoints: on the shared file system, or on a disk of the
// host.
#pragma once

#include <string>

namespace megatron {

struct CheckpointConfig;

/// Returns the folder of non-persistent checkpoints of a run that saves to (or loads from) `root`:
/// --non-persistent-local-ckpt-dir, --non-persistent-global-ckpt-dir, or root/non_persistent.
/// Returns "" without --non-persistent-ckpt-type, or if no folder is given.
std::string non_persistent_folder(const CheckpointConfig& config, const std::string& root);

}  // namespace megatron
