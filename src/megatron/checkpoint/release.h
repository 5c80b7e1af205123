// Release checkpoints: weights without an iteration or optimizer state.
#pragma once

#include <c10/core/Device.h>

#include <filesystem>

#include "megatron/checkpoint/weight_reader.h"
#include "megatron/parallel/axis.h"

namespace megatron {

struct CheckpointSource;

/// Where a release goes, and the ranks that write it together.
struct ReleaseTarget {
  std::filesystem::path root;
  Axis world{"world"};
  c10::Device device{c10::kCPU};
};

/// Writes all weights and states of `reader` as root/release, with the architecture, tokenizer and
/// files of `source`. Each weight is read when it is written, by one of the ranks. Returns the
/// folder. Throws UserError like write_checkpoint(). Collective over target.world.
std::filesystem::path write_release(WeightReader& reader, const CheckpointSource& source,
                                    const ReleaseTarget& target);

}  // namespace megatron
