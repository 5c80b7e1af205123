#include "megatron/nn/ssm/mamba_mixer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>

#include "megatron/config/transformer_config.h"
#include "megatron/ops/differentiable.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

RecurrentLayout layout_of(const TransformerConfig& config) {
  const std::int64_t channels = config.recurrent_sizes(MixerKind::mamba).value_channels(),
                     groups = config.mamba.norm_groups > 0 ? config.mamba.norm_groups
                                                           : config.mamba.num_groups;
  return {.kind = MixerKind::mamba,
          .dt_bias = Init::time_step(0.1),
          .norm = "norm",
          .norm_weight = {.sharding = Sharding::split({channels}, 0),
                          .init = Init::ones(),
                          .tags = {.no_decay = true, .precise = true}},
          .norm_options = {.group_size = channels / groups, .epsilon = config.mamba.norm_epsilon},
          .rule = {}};
}

}  // namespace

MambaMixer::MambaMixer(Module* parent, std::string_view name, const LayerArguments& arguments)
    : RecurrentMixer(parent, name, arguments, layout_of(arguments.config)),
      d_(declare("D",
                 {.sharding = a_log_.sharding(),
                  .init = Init::ones(),
                  .tags = {.no_decay = true, .precise = true}},
                 arguments.rank.tp)) {}

at::Tensor MambaMixer::gates(const at::Tensor& columns) const {
  return differentiable_by_autograd(
      {.name = "TimeStepBackward"}, {columns, tracked_copy(dt_bias_), tracked_copy(a_log_)},
      [](const Tensors& in) {
        const at::Tensor step = at::softplus(in[0].to(in[1].scalar_type()) + in[1]);
        return at::stack({step * -in[2].exp(), step});
      });
}

at::Tensor MambaMixer::with_skip(const at::Tensor& out, const at::Tensor& value) const {
  const at::Tensor d = tracked_copy(d_).unsqueeze(-1);
  Recording recording({.name = "SkipBackward"}, {out, value, d});
  return recording.finish(
      (out + value * d).to(out.scalar_type()), {value, d}, [](BackwardPass& pass) -> Tensors {
        const at::Tensor &x = pass.saved[0], &scale = pass.saved[1], &dy = pass.gradients[0];
        return {dy, (dy * scale).to(x.scalar_type()),
                (dy.to(scale.scalar_type()) * x).sum(at::IntArrayRef{0, 1, 3}).unsqueeze(-1)};
      });
}

}  // namespace megatron
