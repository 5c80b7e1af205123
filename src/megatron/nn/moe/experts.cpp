#include "megatron/nn/moe/experts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>

#include "megatron/config/transformer_config.h"
#include "megatron/nn/moe/grouped_linear.h"
#include "megatron/ops/differentiable.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/weight_init.h"

namespace megatron {
namespace {

/// Returns the declaration of a stacked parameter: ep divides the experts, and etp dimension `dim`
/// of each.
ParameterSpec stacked(Shape shape, int dim, std::vector<ShardBlock> blocks, Init init,
                      bool is_bias) {
  return {.sharding = {.global_shape = std::move(shape),
                       .splits = {{.dim = 0}, {.dim = dim, .blocks = std::move(blocks)}}},
          .init = init,
          .tags = {.no_decay = is_bias,
                   .expert = true,
                   .packing = is_bias ? WeightPacking::none : WeightPacking::in_place}};
}

/// Every rank of etp adds the whole bias of fc2 to its part of the sum, so one of them adds it, and
/// its gradient is the sum of all.
ParameterSpec output_bias(std::int64_t experts, std::int64_t width) {
  ParameterSpec spec = stacked({experts, width}, -1, {}, Init::zeros(), /*is_bias=*/true);
  spec.sharding.splits[1] = {.sums_gradients = true};
  return spec;
}

std::vector<ShardBlock> fc1_blocks(const TransformerConfig& config) {
  const std::int64_t f = config.moe.ffn_hidden_size;
  if (!config.gated_linear_unit) return {};
  return {{f}, {f}};  // gate | up
}

std::int64_t fc1_rows(const TransformerConfig& config) {
  return (config.gated_linear_unit ? 2 : 1) * config.moe.ffn_hidden_size;
}

LayerArguments without_norm(LayerArguments arguments) {
  arguments.has_input_norm = false;
  return arguments;
}

}  // namespace

Experts::Experts(Module* parent, const LayerArguments& arguments, std::int64_t width)
    : Module(parent, "experts"),
      config_(arguments.config),
      rank_(arguments.rank),
      linear_fc1_(this, "linear_fc1"),
      linear_fc2_(this, "linear_fc2"),
      fc1_weight_(linear_fc1_.add(
          "weight",
          stacked({config_.moe.num_experts, fc1_rows(config_), width}, 1, fc1_blocks(config_),
                  input_init(config_, {fc1_rows(config_), width}), /*is_bias=*/false),
          rank_)),
      fc2_weight_(
          linear_fc2_.add("weight",
                          stacked({config_.moe.num_experts, width, config_.moe.ffn_hidden_size}, 2,
                                  {}, residual_init(config_, {width, config_.moe.ffn_hidden_size}),
                                  /*is_bias=*/false),
                          rank_)) {
  if (!config_.add_bias_linear) return;
  fc1_bias_ = &linear_fc1_.add("bias",
                               stacked({config_.moe.num_experts, fc1_rows(config_)}, 1,
                                       fc1_blocks(config_), Init::zeros(), /*is_bias=*/true),
                               rank_);
  fc2_bias_ = &linear_fc2_.add("bias", output_bias(config_.moe.num_experts, width), rank_);
}

void Experts::set_order(const ExpertOrder& order) {
  for (Parameter* parameter : {&fc1_weight_, &fc2_weight_, fc1_bias_, fc2_bias_})
    if (parameter != nullptr) parameter->set_order(0, order);
}

at::Tensor Experts::forward(const DispatchedTokens& tokens, const ForwardContext& context) const {
  const at::Tensor& probs = tokens.probs;
  const std::vector<std::int64_t>& counts = tokens.counts;
  const at::Tensor projected = run_node(context, LayerNode::expert_fc1, [&] {
    return grouped_linear(tokens.rows, fc1_weight_, fc1_bias_, counts);
  });
  const at::Tensor y = run_node(context, LayerNode::moe_act, [&] {
    return activated_grouped_linear(
        {.x = projected, .weights = probs, .form = activation_form(config_)}, fc2_weight_, counts);
  });
  if (fc2_bias_ == nullptr || rank_.etp.rank > 0) return y;
  return add_group_bias(y, probs, *fc2_bias_, counts);
}

SharedExperts::SharedExperts(Module* parent, const LayerArguments& arguments)
    : Mlp(parent, "shared_experts", without_norm(arguments),
          arguments.config.moe.shared_expert_intermediate_size) {
  if (!arguments.config.moe.shared_expert_gate) return;
  const Shape shape{1, arguments.config.hidden_size};
  gate_weight_ = &declare(
      "gate_weight",
      {.sharding = Sharding::replicated(shape, /*sums_gradients=*/arguments.rank.sequence_parallel),
       .init = input_init(arguments.config, shape),
       .tags = {}},
      arguments.rank.tp);
}

at::Tensor SharedExperts::forward(const at::Tensor& input_sbh, const ForwardContext& context) {
  const at::Tensor out = Mlp::forward(input_sbh, context);
  if (gate_weight_ == nullptr) return out;
  return differentiable_by_autograd({.name = "GateBackward"},
                                    {out, linear(input_sbh, *gate_weight_, nullptr)},
                                    [](const Tensors& x) { return x[0] * at::sigmoid(x[1]); });
}

}  // namespace megatron
