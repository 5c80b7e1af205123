// Describes Megatron-LM's checkpoints with a file for each model-parallel rank (--ckpt-format
// torch: mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt) as manifests of ours, as far back as Megatron's
// names and layouts of queries, keys and values go. Their weights are read, their optimizer's state
// is not: it has no names.
#pragma once

#include <filesystem>

#include "megatron/checkpoint/manifest.h"

namespace megatron {

bool is_mp_rank_folder(const std::filesystem::path& folder);

/// Describes such a folder. Reads no tensor. UserErrors name the file and the tensor or arg. Not
/// collective.
Manifest describe_mp_rank(const std::filesystem::path& folder);

}  // namespace megatron
