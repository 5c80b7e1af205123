#include "megatron/nn/moe/latent_projections.h"

#include "megatron/config/transformer_config.h"
#include "megatron/nn/linear.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/weight_init.h"

namespace megatron {
namespace {

ParameterSpec projection_spec(const LayerArguments& arguments, const Shape& shape,
                              Init (*init)(const TransformerConfig&, const Shape&)) {
  return {.sharding = Sharding::replicated(shape, /*sums_gradients=*/arguments.rank.tp.size > 1),
          .init = init(arguments.config, shape),
          .tags = {}};
}

}  // namespace

LatentProjections::LatentProjections(Module* parent, const LayerArguments& arguments)
    : fc1_latent_proj_(
          parent, "fc1_latent_proj",
          projection_spec(arguments,
                          {arguments.config.moe.latent_size, arguments.config.hidden_size},
                          input_init),
          arguments.rank.tp),
      fc2_latent_proj_(
          parent, "fc2_latent_proj",
          projection_spec(arguments,
                          {arguments.config.hidden_size, arguments.config.moe.latent_size},
                          residual_init),
          arguments.rank.tp) {}

at::Tensor LatentProjections::down(const at::Tensor& x) const {
  return linear(x, fc1_latent_proj_.parameter, nullptr);
}

at::Tensor LatentProjections::up(const at::Tensor& x) const {
  return linear(x, fc2_latent_proj_.parameter, nullptr);
}

}  // namespace megatron
