// The routers' part of a training step: the gradient of their auxiliary losses, their statistics
// over the whole batch, and the expert bias.
#pragma once

#include <vector>

#include "megatron/metrics/step_metrics.h"
#include "megatron/training/step/train_step.h"

namespace megatron {

/// Attaches to each microbatch the gradient that its auxiliary losses receive. The objective is the
/// mean of the auxiliary losses over the microbatches of all data-parallel ranks, whatever the
/// layout and whichever way the main loss is normalized. Does nothing for a model without experts.
/// Collective over dp-cp with calculate_per_token_loss.
void attach_aux_loss_gradients(const TrainStepContext& context, const TrainStepOptions& options,
                               std::vector<Microbatch>& batch);

/// Makes the routers forget the statistics of the last step.
void begin_router_step(Model& model);

/// Ends the step of the routers: reduces their statistics over all ranks and, with `applied`, moves
/// their expert biases. Returns one entry for each layer with experts, on every rank. Collective
/// over the world for a model with experts.
std::vector<LayerRouting> finish_router_step(const TrainStepContext& context,
                                             const TrainStepOptions& options, bool applied);

}  // namespace megatron
