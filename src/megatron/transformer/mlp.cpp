#include "megatron/transformer/mlp.h"

#include "megatron/transformer/activation.h"
#include "megatron/transformer/fixed_blocks.h"

namespace megatron {
namespace {

ColumnParallelLinear::Options fc1_options(const LayerArguments& arguments) {
  const TransformerConfig& config = arguments.config;
  const std::int64_t f = config.ffn_hidden_size;
  ColumnParallelLinear::Options options{
      .in = config.hidden_size, .out = f, .blocks = {}, .bias = config.add_bias_linear, .with_norm = arguments.norm_inside};
  if (config.gated_linear_unit) {
    options.out = 2 * f;
    options.blocks = {{f}, {f}};  // gate | up
  }
  return options;
}

}  // namespace

Mlp::Mlp(Module* parent, std::string_view name, const LayerArguments& arguments)
    : FeedForward(parent, name),
      config_(arguments.config),
      linear_fc1_(this, "linear_fc1", config_, arguments.rank, fc1_options(arguments)),
      linear_fc2_(this, "linear_fc2", config_, arguments.rank, config_.ffn_hidden_size, config_.hidden_size) {}

at::Tensor Mlp::act(const at::Tensor& projected) const {
  if (wants_determinism() && projected.is_cpu()) return activate_in_fixed_blocks(projected, config_.activation, config_.gated_linear_unit);
  return config_.gated_linear_unit ? activate_gated(projected, config_.activation) : activate(projected, config_.activation);
}

BlockOutput Mlp::forward(const at::Tensor& hidden_sbh, const ForwardContext& context) {
  const auto [projected, normalised] = linear_fc1_.forward(hidden_sbh, context);
  if (config_.norm_placement == NormPlacement::pre) show_op(context.hooks, linear_fc1_, "layer_norm", normalised);
  show_op(context.hooks, linear_fc1_, "", projected);
  const at::Tensor activated = act(projected);
  show_op(context.hooks, *this, "activation", activated);
  const at::Tensor out = linear_fc2_.forward(activated, context);
  show_op(context.hooks, linear_fc2_, "", out);
  return {out, normalised};
}

}  // namespace megatron
