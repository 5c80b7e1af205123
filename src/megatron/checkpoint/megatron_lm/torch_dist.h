// Describes Megatron-LM's torch_dist checkpoints as manifests of ours, so that all that reads
// checkpoints reads them too. Their names have no layers' numbers where all layers are alike; see
// "4. Checkpoints" of megatron-core's dist_checkpointing for the rest of the form.
#pragma once

#include <filesystem>
#include <string>

#include "megatron/checkpoint/manifest.h"

namespace megatron {

/// Returns whether a folder is an iteration that Megatron-LM saved in this format, or that DCP did.
bool is_torch_dist_folder(const std::filesystem::path& folder);

/// Describes such a folder: the architecture and settings from its args, progress, weights, and the
/// state of the optimizer if its form does not depend on the layout of the run. Reads no tensor.
/// UserErrors name the folder and the tensor or arg. Not collective.
Manifest describe_torch_dist(const std::filesystem::path& folder);

}  // namespace megatron
