// Where checkpoints that only bridge a gap lie: beside the lasting ones, or on a disk of the
// machine.
#pragma once

#include <string>

#include "megatron/config/settings.h"

namespace megatron {

/// The folder of non-persistent checkpoints of the run that saves to (or loads from) `root`:
/// --non-persistent-local-ckpt-dir,
/// --non-persistent-global-ckpt-dir, or root/non_persistent. "" without --non-persistent-ckpt-type,
/// or when nothing names a folder.
std::string non_persistent_folder(const CheckpointConfig& config, const std::string& root);

}  // namespace megatron
