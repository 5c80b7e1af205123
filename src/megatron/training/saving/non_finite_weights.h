// Whether weights that were just loaded are numbers at all: a checkpoint of a run that diverged
// cannot train on.
#pragma once

#include <string>

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/parallel/rank.h"

namespace megatron {

/// "<folder> holds weights that are not finite: <the first one> holds …" when a weight of `store`,
/// on any rank, is not finite; else "". Collective over rank.world.
std::string non_finite_weights(const CheckpointSource& source, const ParamStore& store,
                               const Rank& rank);

}  // namespace megatron
