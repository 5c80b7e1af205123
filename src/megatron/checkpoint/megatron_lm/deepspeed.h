// Describes DeepSpeed's checkpoints (global_stepN/) as manifests of ours: the float32 weights and
// the optimizer's state that ZeRO divided among files, as DeepSpeed's zero_to_fp32.py puts them
// together. The names are those of Megatron-DeepSpeed, also in runs with pipelines, or of a Hugging
// Face model.
#pragma once

#include <filesystem>
#include <optional>

#include "megatron/checkpoint/manifest.h"

namespace megatron {

/// Returns whether a folder has shards of ZeRO, or layers of a pipeline of DeepSpeed.
bool is_deepspeed_folder(const std::filesystem::path& folder);

/// Returns the folder global_stepN of `step` in `root`, or the one that the file `latest` names.
/// Without such a file there is none.
std::optional<std::filesystem::path> find_deepspeed_folder(const std::filesystem::path& root,
                                                           std::optional<std::int64_t> step);

/// Describes such a folder. A model without Megatron's args needs its config.json there or in the
/// folder above. Reads no tensor. UserErrors name the file and the tensor. Not collective.
Manifest describe_deepspeed(const std::filesystem::path& folder);

}  // namespace megatron
