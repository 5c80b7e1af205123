#include "megatron/training/loop/kept_model.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "megatron/config/print_config.h"
#include "megatron/models/architecture.h"
#include "megatron/nn/moe/expert_order.h"
#include "megatron/nn/moe/moe_layer.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/run/training_plan.h"

namespace megatron {
namespace {

/// Returns a text that is equal for two plans whose models are built alike.
std::string identity_of(const TrainingPlan& plan) {
  const std::string place = "rank " + std::to_string(plan.rank.index) + " of " +
                            std::to_string(plan.rank.world.size) + " on " + plan.rank.device.str() +
                            " with " + c10::toString(plan.params_dtype) + '\n';
  return place + argument_dump(plan.settings) + architecture_to_json(*plan.settings.model).dump();
}

/// Undoes what a run changes in the layers besides their parameters. What a step changes, the next
/// step overwrites (forward_backward()).
void reset(Model& model) {
  for (MoeLayer* layer : moe_layers(model))
    layer->place_experts(ascending_order(model.config().moe.num_experts));
}

}  // namespace

void KeptModel::keep(Trainer& trainer) {
  if (trainer.state.offload_store) return;
  kept_.emplace(Kept{.identity = identity_of(trainer.plan),
                     .layout = trainer.plan.pipeline.layout(),
                     .rank = trainer.plan.rank,
                     .model = std::move(trainer.state.model)});
}

std::unique_ptr<Model> KeptModel::take(TrainingPlan& plan) {
  std::optional<Kept> kept = std::exchange(kept_, std::nullopt);
  if (!kept || kept->identity != identity_of(plan) || kept->layout != plan.pipeline.layout())
    return nullptr;
  plan.rank = std::move(kept->rank);
  reset(*kept->model);
  return std::move(kept->model);
}

}  // namespace megatron
