// Describes Megatron-LM's checkpoints with a file for each model-parallel rank (--ckpt-format
// torch: mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt) as manifests of ours, as far back as Megatron's
// names and layouts of queries, keys and values go. Their weights are read, their optimizer's state
// is not: it has no names.
#pragma once

#include <filesystem>
#include <vector>

#include "megatron/checkpoint/manifest.h"
#include "megatron/checkpoint/megatron_lm/foreign_tensor.h"
#include "megatron/formats/torch_file.h"

namespace megatron {

bool is_mp_rank_folder(const std::filesystem::path& folder);

/// Describes such a folder. Reads no tensor. UserErrors name the file and the tensor or arg. Not
/// collective.
Manifest describe_mp_rank(const std::filesystem::path& folder);

/// Describes a model whose tensors have the names of these folders. `ranks` has all of them of each
/// tensor-parallel rank, and `state` the args. The optimizer is left to the caller.
Manifest describe_rank_models(const std::filesystem::path& folder, const PickleValue& state,
                              const std::vector<RankTensors>& ranks);

}  // namespace megatron
