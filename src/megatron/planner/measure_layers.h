// How long the parts of a model take on this machine: what stages are balanced by and schedules are
// searched with.
#pragma once

#include "megatron/config/balance.h"
#include "megatron/config/settings.h"
#include "megatron/parallel/rank.h"
#include "megatron/schedules/simulate.h"

namespace megatron {

/// Of one microbatch: medians, the same on every rank.
struct LayerTimes {
  StageCost embedding, layer, output;
  double message_s = 0;  ///< hidden rows from one stage to the next
};

/// Runs embedding, one layer and output of the model in `settings` (resolved) forward and backward
/// a few times, with weights of their own. Collective over the world.
LayerTimes measure_layers(const Settings& settings, const Rank& rank);

/// Forward and backward together.
LayerCosts layer_costs(const LayerTimes& times);
/// Of the stages of a layout; activations in units of a rank's share of the layers.
CostModel stage_costs(const LayerTimes& times, const PipelineLayout& layout);

/// For people: one line.
std::string describe(const LayerTimes& times);

}  // namespace megatron
