#include "megatron/nn/linear_layers.h"

#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/weight_init.h"

namespace megatron {

ColumnParallelLinear::ColumnParallelLinear(Module* parent, const char* name,
                                           const TransformerConfig& config, const Rank& rank,
                                           const Options& options)
    : Module(parent, name),
      norm_weight_(options.with_norm ? &declare("layer_norm_weight",
                                                norm_weight_spec(config, options.in, rank), rank.tp)
                                     : nullptr),
      norm_bias_(options.with_norm && config.has_norm_bias()
                     ? &declare("layer_norm_bias", norm_bias_spec(options.in, rank), rank.tp)
                     : nullptr),
      weight_(declare("weight",
                      gemm_weight_spec(config, Sharding::split({options.out, options.in}, 0,
                                                               options.blocks, options.repeats)),
                      rank.tp)),
      norm_options_(norm_options(config)),
      exchange_{.options = rank.tp_options, .what = name},
      node_(options.node) {
  if (options.bias) {
    bias_ = &declare("bias",
                     bias_spec(Sharding::split({options.out}, 0, options.blocks, options.repeats)),
                     rank.tp);
  }
}

at::Tensor ColumnParallelLinear::forward(const at::Tensor& x, const ForwardContext& context,
                                         bool add_bias) const {
  LinearExchange exchange = exchange_;
  exchange.input =
      context.sequence_parallel ? LinearExchange::Input::gathered : LinearExchange::Input::copied;
  return run_node(context, {*this, {}, node_},
                  [&] { return linear(x, weight_, add_bias ? bias_ : nullptr, exchange); });
}

RowParallelLinear::RowParallelLinear(Module* parent, const char* name,
                                     const TransformerConfig& config, const Rank& rank,
                                     std::int64_t in, std::int64_t out, LayerNode node,
                                     bool may_have_bias)
    : Module(parent, name),
      weight_(declare("weight",
                      {.sharding = Sharding::split({out, in}, 1),
                       .init = residual_init(config, {out, in}),
                       .tags = {.packing = WeightPacking::in_place}},
                      rank.tp)),
      exchange_{.options = rank.tp_options, .what = name},
      node_(node) {
  if (config.add_bias_linear && may_have_bias) {
    bias_ = &declare(
        "bias", bias_spec(Sharding::replicated({out}, /*sums_gradients=*/rank.sequence_parallel)),
        rank.tp);
  }
}

LinearExchange RowParallelLinear::exchange(const ForwardContext& context) const {
  LinearExchange exchange = exchange_;
  exchange.output = context.sequence_parallel ? LinearExchange::Output::reduce_scattered
                                              : LinearExchange::Output::reduced;
  return exchange;
}

at::Tensor RowParallelLinear::forward(const at::Tensor& x, const ForwardContext& context) const {
  return run_node(context, {*this, {}, node_},
                  [&] { return linear(x, weight_, bias_, exchange(context)); });
}

at::Tensor RowParallelLinear::forward(const at::Tensor& x, const BiasActivation& activation,
                                      const ForwardContext& context) const {
  return run_node(context, {*this, {}, node_}, [&] {
    return activated_linear(x, activation, weight_, bias_, exchange(context));
  });
}

}  // namespace megatron
