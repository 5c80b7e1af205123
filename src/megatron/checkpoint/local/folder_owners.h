// Finds out which ranks share a folder, by looking: hosts have disks of their own under one name.
#pragma once

#include <c10/core/Device.h>

#include <filesystem>

#include "megatron/checkpoint/local/replication_groups.h"
#include "megatron/parallel/axis.h"

namespace megatron {

/// Returns which ranks see the same folder `root`, which is created if needed. Collective over the
/// world.
FolderOwners find_folder_owners(const std::filesystem::path& root, const Axis& world,
                                c10::Device device);

}  // namespace megatron
