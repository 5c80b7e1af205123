#include "megatron/training/step/router_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include "megatron/config/moe_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/nn/moe/moe_layer.h"
#include "megatron/parallel/collectives.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

/// The auxiliary losses under Megatron's names, in the order of its log.
struct AuxLossName {
  const char* name;
  LoadBalancing type;
  RoutingStatistics::Sum sum;
};
constexpr AuxLossName kAuxLosses[] = {
    {"load_balancing_loss", LoadBalancing::aux_loss, RoutingStatistics::aux_loss},
    {"seq_load_balancing_loss", LoadBalancing::seq_aux_loss, RoutingStatistics::seq_aux_loss},
    {"global_load_balancing_loss", LoadBalancing::global_aux_loss,
     RoutingStatistics::global_aux_loss}};

LayerRouting routing_of(const MoeConfig& config, std::int64_t layer, const double* sums,
                        double microbatches) {
  const auto experts = static_cast<std::size_t>(config.num_experts);
  const auto sum = [&](RoutingStatistics::Sum which) { return sums[experts + which]; };
  const double tokens = sum(RoutingStatistics::tokens);
  LayerRouting routing{.layer = layer,
                       .load = {sums, sums + experts},
                       .dropped = sum(RoutingStatistics::dropped),
                       .entropy = tokens > 0 ? sum(RoutingStatistics::entropy) / tokens : 0,
                       .losses = {}};
  for (const AuxLossName& loss : kAuxLosses) {
    if (config.coefficient(loss.type) != 0)
      routing.losses.emplace_back(loss.name, sum(loss.sum) / microbatches);
  }
  if (config.z_loss_coeff.value_or(0) != 0)
    routing.losses.emplace_back("z_loss", sum(RoutingStatistics::z_loss) / microbatches);
  return routing;
}

}  // namespace

void attach_aux_loss_gradients(const TrainStepContext& context, const TrainStepOptions& options,
                               std::vector<Microbatch>& batch) {
  if (context.model.config().moe.num_experts == 0) return;
  at::Tensor gradient = context.optimizer.loss_scale().to(at::kDouble) /
                        (static_cast<double>(options.num_microbatches) * loss_divisor(context));
  if (options.calculate_per_token_loss) {
    // The whole gradient is divided by the count of the batch at the end of the step.
    at::Tensor count = at::zeros({}, gradient.options());
    for (const Microbatch& microbatch : batch) {
      if (context_axis(microbatch, context.rank).rank == 0)  // of the ranks that share it
        count += context.model.objective().count(microbatch);
    }
    all_reduce_(context.rank.dp_cp, count, "tokens of the batch");
    gradient = gradient * count.clamp_min(1);
  }
  for (Microbatch& microbatch : batch) microbatch.tensors["aux_loss_gradient"] = gradient;
}

void begin_router_step(Model& model) {
  for (MoeLayer* layer : moe_layers(model)) layer->router().begin_step();
}

std::vector<LayerRouting> finish_router_step(const TrainStepContext& context,
                                             const TrainStepOptions& options, bool applied) {
  const TransformerConfig& config = context.model.config();
  if (config.moe.num_experts == 0) return {};
  const std::int64_t width = config.moe.num_experts + RoutingStatistics::kNumSums;
  at::Tensor sums = at::zeros({config.num_all_layers(), width},
                              context.optimizer.loss_scale().options().dtype(at::kDouble));
  for (MoeLayer* layer : moe_layers(context.model)) {
    const RoutingStatistics& statistics = layer->router().statistics();
    if (statistics.sums.defined()) sums[statistics.layer].copy_(statistics.sums);
  }
  for (const Axis* axis : {&context.rank.tp, &context.rank.dp_cp, &context.rank.pp})
    all_reduce_(*axis, sums, "router statistics of the step");
  for (MoeLayer* layer : moe_layers(context.model)) {
    if (applied)
      layer->router().update_expert_bias(sums[layer->index()].narrow(0, 0, config.moe.num_experts));
  }
  const at::Tensor numbers = sums.cpu().contiguous();
  const double microbatches = static_cast<double>(options.num_microbatches * context.rank.dp.size);
  std::vector<LayerRouting> layers;
  for (std::int64_t layer = 0; layer < config.num_all_layers(); ++layer) {
    const bool is_repeated =
        config.mtp_use_repeated_layer && layer >= config.num_layers + config.mtp_depth_layers;
    if (config.kind(layer).has_experts() && !is_repeated)
      layers.push_back(routing_of(config.moe, layer,
                                  numbers.const_data_ptr<double>() + layer * width, microbatches));
  }
  return layers;
}

}  // namespace megatron
