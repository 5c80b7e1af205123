#include "megatron/nn/moe/latent_projections.h"

#include "megatron/config/transformer_config.h"
#include "megatron/nn/linear.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/weight_init.h"

namespace megatron {
namespace {

ParameterSpec projection_spec(const Shape& shape, Init init, const Rank& rank) {
  return {.sharding = Sharding::replicated(shape, /*sums_gradients=*/rank.tp.size > 1),
          .init = init,
          .tags = {}};
}

}  // namespace

LatentProjections::LatentProjections(Module* parent, const LayerArguments& arguments)
    : fc1_latent_proj_(
          parent, "fc1_latent_proj",
          projection_spec({arguments.config.moe.latent_size, arguments.config.hidden_size},
                          input_init(arguments.config, {arguments.config.moe.latent_size,
                                                        arguments.config.hidden_size}),
                          arguments.rank),
          arguments.rank.tp),
      fc2_latent_proj_(
          parent, "fc2_latent_proj",
          projection_spec({arguments.config.hidden_size, arguments.config.moe.latent_size},
                          residual_init(arguments.config, {arguments.config.hidden_size,
                                                           arguments.config.moe.latent_size}),
                          arguments.rank),
          arguments.rank.tp) {}

at::Tensor LatentProjections::down(const at::Tensor& x) const {
  return linear(x, fc1_latent_proj_.parameter, nullptr);
}

at::Tensor LatentProjections::up(const at::Tensor& x) const {
  return linear(x, fc2_latent_proj_.parameter, nullptr);
}

}  // namespace megatron
