// The start of a run with --moe-use-upcycling: the dense checkpoint of --load becomes a release
// checkpoint with experts in --save, from which the run starts.
#pragma once

#include <iosfwd>

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/parallel/rank.h"

namespace megatron {

/// Writes the dense model `source` with the experts of `settings` to --save and returns that
/// checkpoint. Throws UserError when --save holds a checkpoint already. Collective over rank.world;
/// rank 0 writes.
CheckpointSource upcycle(const CheckpointSource& source, const Settings& settings, const Rank& rank,
                         std::ostream& out);

}  // namespace megatron
