// The attention's part of a training step: the largest score of each head, and QK clip, which
// scales down the weights of queries and keys whose scores grow too large ("MuonClip", Kimi Team
// 2025, "Kimi K2", §2.1).
#pragma once

#include <optional>

#include "megatron/training/step/train_step.h"

namespace megatron {

/// Makes the attention layers record the largest score of each head, if the step wants it.
void begin_attention_step(const TrainStepContext& context, const TrainStepOptions& options);

/// Returns the largest score of the step in the whole model, if the step wants it. With QK clip and
/// `applied`, first scales the weights of the query groups with a score above the threshold t: with
/// η = t / largest score, queries by η^α and keys by η^(1 − α). As in Megatron-LM the heads of a
/// group share η, and biases are not scaled. Collective over the world.
std::optional<double> finish_attention_step(const TrainStepContext& context,
                                            const TrainStepOptions& options, bool applied);

}  // namespace megatron
