// Measures how long the parts of a model take on this machine. Stage balancing and the schedule
// search use these times.
#pragma once

#include "megatron/config/balance.h"
#include "megatron/config/settings.h"
#include "megatron/models/model_family.h"
#include "megatron/parallel/rank.h"
#include "megatron/schedules/simulate.h"

namespace megatron {

/// Median times of one microbatch, in seconds; identical on every rank.
struct LayerTimes {
  StageCost embedding, layer, output;
  double message_s = 0;  ///< time to send hidden states from one stage to the next
};

/// Runs embedding, one layer and the output layer of the model in `settings` (resolved) forward and
/// backward a few times, with temporary weights. Collective over the world.
LayerTimes measure_layers(const Settings& settings, const ModelFamily& family, const Rank& rank);

/// Returns the costs with forward and backward added.
LayerCosts layer_costs(const LayerTimes& times);
/// Returns the costs of the stages of `layout`. The unit of activations is one rank's share of the
/// layers.
CostModel stage_costs(const LayerTimes& times, const PipelineLayout& layout);

/// Returns a one-line summary for the log.
std::string describe(const LayerTimes& times);

}  // namespace megatron
