#include "megatron/nn/ssm/gated_delta_net.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>

#include <cmath>
#include <utility>

#include "megatron/config/transformer_config.h"
#include "megatron/ops/differentiable.h"

namespace megatron {
namespace {

RecurrentLayout layout_of(const LayerArguments& arguments) {
  const TransformerConfig& config = arguments.config;
  const RecurrentSizes sizes = config.recurrent_sizes(MixerKind::gated_delta_net);
  const bool adds_one = config.apply_layernorm_1p && config.linear_attention.norm_1p;
  ParameterSpec norm_weight =
      norm_weight_spec(config, sizes.value_dim, arguments.rank, NormInput::heads);
  norm_weight.tags.qk_norm = false;
  if (!adds_one) norm_weight.init = Init::ones();
  return {.kind = MixerKind::gated_delta_net,
          .dt_bias = Init::ones(),
          .norm = "out_norm",
          .norm_weight = std::move(norm_weight),
          .norm_options = {.group_size = sizes.value_dim,
                           .norm_before_gate = true,
                           .epsilon =
                               config.linear_attention.norm_epsilon.value_or(config.norm_epsilon),
                           .offset = adds_one ? 1.0 : 0.0},
          .rule = {.delta_rule = true,
                   .normalizes_qk = true,
                   .q_scale = 1 / std::sqrt(static_cast<double>(sizes.key_dim))}};
}

}  // namespace

GatedDeltaNet::GatedDeltaNet(Module* parent, std::string_view name, const LayerArguments& arguments)
    : RecurrentMixer(parent, name, arguments, layout_of(arguments)),
      most_beta_(arguments.config.linear_attention.allow_neg_eigval ? 2 : 1) {}

at::Tensor GatedDeltaNet::gates(const at::Tensor& columns, const HeadShare& share) const {
  return differentiable_by_autograd(
      {.name = "DeltaGatesBackward"}, {columns, of_heads(dt_bias_, share), of_heads(a_log_, share)},
      [most = most_beta_](const Tensors& in) {
        const Tensors gates = in[0].to(in[1].scalar_type()).chunk(2, -1);
        const at::Tensor beta = at::sigmoid(gates[0]);
        return at::stack(
            {at::softplus(gates[1] + in[1]) * -in[2].exp(), most == 1 ? beta : beta * most});
      });
}

}  // namespace megatron
