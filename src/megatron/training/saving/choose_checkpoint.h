// Which checkpoint a run starts from. One rank looks, and tells the others: no rank lists a folder
// that another one is already writing to.
#pragma once

#include <iosfwd>
#include <optional>

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/loop/startup_warnings.h"

namespace megatron {

/// What --load names, or a non-persistent checkpoint beside it that is not older; nothing, after
/// Megatron's warning, when there is no checkpoint. UserError on every rank with --finetune or
/// --exit-on-missing-checkpoint then, and for folders that hold something else. Collective over
/// rank.world, and no rank returns before all have opened what rank 0 chose.
std::optional<CheckpointSource> choose_checkpoint(const CheckpointConfig& config, const Rank& rank,
                                                  StartupWarnings& warnings, std::ostream& out);

}  // namespace megatron
