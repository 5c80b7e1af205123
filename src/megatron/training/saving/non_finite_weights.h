// Checks loaded weights for NaN and Inf, because training cannot continue from the checkpoint of a
// diverged run.
#pragma once

#include <string>

#include "megatron/checkpoint/checkpoint.h"

namespace megatron {

struct CheckpointSource;
struct Rank;

/// Returns "<folder> holds weights that are not finite: <name of the first one> holds …" when a
/// weight of `store` is not finite on any rank, and "" otherwise. Collective over rank.world.
std::string non_finite_weights(const CheckpointSource& source, const ParamStore& store,
                               const Rank& rank);

}  // namespace megatron
