// Describes Megatron-LM's torch_dist checkpoints as manifests of ours, so that all that reads
// checkpoints reads them too, and writes such checkpoints and plain folders of DCP. Their names
// have no layers' numbers where all layers are alike; see "4. Checkpoints" of megatron-core's
// dist_checkpointing for the rest of the form.
#pragma once

#include <filesystem>
#include <string>

#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/weight_reader.h"

namespace megatron {

/// Returns whether a folder is an iteration that Megatron-LM saved in this format, or that DCP did.
bool is_torch_dist_folder(const std::filesystem::path& folder);

/// Describes such a folder: the architecture and settings from its args, progress, weights, and the
/// state of the optimizer if its form does not depend on the layout of the run. Reads no tensor.
/// UserErrors name the folder and the tensor or arg. Not collective.
Manifest describe_torch_dist(const std::filesystem::path& folder);

/// Writes weights, states of layers and, if `source` has it, the state of the optimizer to
/// root/iter_%07d or root/release, with the tracker. `reader` reads what `source` describes. Layers
/// that are alike are stacked. The root must be empty or not exist and appears complete; a part of
/// a tensor, of bounded size, is in memory at a time. Returns the folder. UserError for families
/// that Megatron-LM does not save under these names, and for settings of layers that it lacks.
std::filesystem::path write_torch_dist(WeightReader& reader, const CheckpointSource& source,
                                       const std::filesystem::path& root);

/// Writes the same tensors to `folder` under our names, each as one tensor.
void write_dcp(WeightReader& reader, const CheckpointSource& source,
               const std::filesystem::path& folder);

}  // namespace megatron
