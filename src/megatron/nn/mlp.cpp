#include "megatron/nn/mlp.h"

#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

ColumnParallelLinear::Options fc1_options(const LayerArguments& arguments, std::int64_t f) {
  const TransformerConfig& config = arguments.config;
  ColumnParallelLinear::Options options{.in = config.hidden_size,
                                        .out = f,
                                        .blocks = {},
                                        .bias = config.add_bias_linear,
                                        .with_norm = arguments.has_input_norm};
  if (config.gated_linear_unit) {
    options.out = 2 * f;
    options.blocks = {{f}, {f}};  // gate | up
  }
  return options;
}

}  // namespace

Mlp::Mlp(Module* parent, std::string_view name, const LayerArguments& arguments)
    : Mlp(parent, name, arguments, arguments.config.ffn_hidden_size) {}

Mlp::Mlp(Module* parent, std::string_view name, const LayerArguments& arguments, std::int64_t width)
    : Sublayer(parent, name, {.norm = LayerNode::mlp_norm, .block = LayerNode::mlp}),
      config_(arguments.config),
      linear_fc1_(this, "linear_fc1", config_, arguments.rank, fc1_options(arguments, width)),
      linear_fc2_(this, "linear_fc2", config_, arguments.rank, width, config_.hidden_size) {}

at::Tensor Mlp::forward(const at::Tensor& input_sbh, const ForwardContext& context) {
  // The activation adds the bias. Hooks see the GEMM's result before that.
  const at::Tensor projected = linear_fc1_.forward(input_sbh, context, /*add_bias=*/false);
  const BiasActivation activation{activation_form(config_), linear_fc1_.bias()};
  // Hooks may see the activation and its gradient, which then is an operator of its own.
  if (!observes_ops(context.hooks)) return linear_fc2_.forward(projected, activation, context);
  const at::Tensor activated =
      run_node(context, {*this, "activation"}, [&] { return activate(projected, activation); });
  return linear_fc2_.forward(activated, context);
}

}  // namespace megatron
