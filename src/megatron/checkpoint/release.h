// Release checkpoints: weights without an iteration or optimizer state.
#pragma once

#include <filesystem>

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/weight_reader.h"

namespace megatron {

/// Writes all weights and states of `reader` as root/release, with the architecture, tokenizer and
/// files of `source`. One process does it; each weight is read when it is written. Returns the
/// folder. Throws UserError like write_checkpoint().
std::filesystem::path write_release(WeightReader& reader, const CheckpointSource& source,
                                    const std::filesystem::path& root);

}  // namespace megatron
