// Measures how long the parts of a model take on this machine. Stage balancing and the schedule
// search use these times.
#pragma once

#include <string>

#include "megatron/config/activation_plan.h"
#include "megatron/config/balance.h"
#include "megatron/config/layer_plan.h"
#include "megatron/models/model_family.h"
#include "megatron/schedules/simulate.h"

namespace megatron {

struct Rank;
struct Settings;
struct TransformerConfig;

/// The costs of no part, to which others are added.
inline constexpr StageCost kNoCost{.forward_s = 0,
                                   .backward_input_s = 0,
                                   .backward_weight_s = 0,
                                   .activation = 0,
                                   .weight_gradient = 0};

/// Median times of one microbatch, in seconds; identical on every rank.
struct LayerTimes {
  StageCost embedding, output;
  /// One layer of each kind; the unit of their activations is arbitrary. Experts' times include the
  /// exchange of tokens between ranks.
  ByKind<StageCost> layers;
  double message_s = 0;  ///< time to send hidden states from one stage to the next
};

/// Runs embedding, one layer of each kind and the output layer of the model in `settings`
/// (resolved) forward and backward a few times, with temporary weights, and recomputes what
/// `activations`, a plan for the layers of the model, says; null: nothing. Collective over the
/// world.
LayerTimes measure_layers(const Settings& settings, const ModelFamily& family, const Rank& rank,
                          const ActivationPlan* activations = nullptr);

/// Returns a full microbatch of made-up tokens, what `rank` holds of it.
Microbatch synthetic_microbatch(const Settings& settings, const ModelFamily& family,
                                const Rank& rank);

/// Returns the costs with forward and backward added. A model with several kinds of
/// layers has the mean of its layers.
LayerCosts layer_costs(const LayerTimes& times, const TransformerConfig& model);
/// Returns the costs of the stages of `layout`, each layer with the times of its kind. The unit of
/// activations is one rank's share of the layers.
CostModel stage_costs(const LayerTimes& times, const PipelineLayout& layout,
                      const TransformerConfig& model);

/// Returns a one-line summary for the log.
std::string describe(const LayerTimes& times);

}  // namespace megatron
