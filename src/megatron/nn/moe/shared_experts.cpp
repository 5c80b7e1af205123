#include "megatron/nn/moe/shared_experts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>

#include "megatron/config/transformer_config.h"
#include "megatron/nn/linear.h"
#include "megatron/ops/differentiable.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/weight_init.h"

namespace megatron {
namespace {

LayerArguments without_norm(LayerArguments arguments) {
  arguments.has_input_norm = false;
  return arguments;
}

}  // namespace

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
