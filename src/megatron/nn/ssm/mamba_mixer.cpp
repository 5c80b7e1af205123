#include "megatron/nn/ssm/mamba_mixer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include "megatron/config/transformer_config.h"
#include "megatron/ops/differentiable.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

RecurrentLayout layout_of(const TransformerConfig& config) {
  const std::int64_t channels = config.recurrent_sizes(MixerKind::mamba).value_channels();
  return {.kind = MixerKind::mamba,
          .dt_bias = Init::time_step(0.1),
          .norm = "norm",
          .norm_weight = {.sharding = Sharding::split({channels}, 0),
                          .init = Init::ones(),
                          .tags = {.no_decay = true, .precise = true}},
          .norm_options = {.group_size = channels / config.mamba.num_norm_groups(),
                           .epsilon = config.mamba.norm_epsilon},
          .rule = {}};
}

constexpr std::int64_t kPartElements = 1 << 18;

}  // namespace

MambaMixer::MambaMixer(Module* parent, std::string_view name, const LayerArguments& arguments)
    : RecurrentMixer(parent, name, arguments, layout_of(arguments.config)),
      d_(declare("D",
                 {.sharding = a_log_.sharding(),
                  .init = Init::ones(),
                  .tags = {.no_decay = true, .precise = true}},
                 arguments.rank.tp)) {}

at::Tensor MambaMixer::gates(const at::Tensor& columns, const HeadShare& share) const {
  return differentiable_by_autograd(
      {.name = "TimeStepBackward"}, {columns, of_heads(dt_bias_, share), of_heads(a_log_, share)},
      [](const Tensors& in) {
        const at::Tensor step = at::softplus(in[0].to(in[1].scalar_type()) + in[1]);
        return at::stack({step * -in[2].exp(), step});
      });
}

at::Tensor MambaMixer::with_skip(const at::Tensor& out, const at::Tensor& value,
                                 const HeadShare& share) const {
  const at::Tensor d = of_heads(d_, share).unsqueeze(-1);
  Recording recording({.name = "SkipBackward"}, {out, value, d});
  at::Tensor sum = at::empty(out.sizes(), out.options());
  for_each_part(sum, kPartElements,
                [&](const auto& part) { part(sum).copy_(part(out) + part(value) * d); });
  return recording.finish(sum, {value, d}, [](BackwardPass& pass) -> Tensors {
    const at::Tensor &x = pass.saved[0], &scale = pass.saved[1], &dy = pass.gradients[0];
    const at::Tensor dx = at::empty(x.sizes(), x.options()), sums = at::zeros_like(scale);
    for_each_part(dx, kPartElements, [&](const auto& part) {
      part(dx).copy_(part(dy) * scale);
      sums.add_(
          (part(dy).to(scale.scalar_type()) * part(x)).sum(at::IntArrayRef{0, 1, 3}).unsqueeze(-1));
    });
    return {dy, dx, sums};
  });
}

}  // namespace megatron
