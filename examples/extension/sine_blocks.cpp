#include <ATen/core/Tensor.h>
#include <ATen/ops/sin.h>

#include "megatron/config/transformer_config.h"
#include "megatron/nn/linear_layers.h"
#include "megatron/nn/self_attention.h"
#include "megatron/ops/differentiable.h"
#include "sine_family.h"

namespace {

/// fc2(sin(fc1(x))), sharded over tp.
class SineMlp : public megatron::Sublayer {
 public:
  SineMlp(Module* parent, std::string_view name, const megatron::LayerArguments& arguments)
      : Sublayer(parent, name,
                 {.norm = megatron::LayerNode::mlp_norm, .block = megatron::LayerNode::mlp}),
        fc1_(this, "linear_fc1", arguments.config, arguments.rank,
             {.in = arguments.config.hidden_size,
              .out = arguments.config.ffn_hidden_size,
              .bias = arguments.config.add_bias_linear,
              .with_norm = arguments.has_input_norm}),
        fc2_(this, "linear_fc2", arguments.config, arguments.rank, arguments.config.ffn_hidden_size,
             arguments.config.hidden_size) {}

  megatron::NormWeights input_norm() const override { return fc1_.input_norm(); }

  at::Tensor forward(const at::Tensor& input_sbh,
                     const megatron::ForwardContext& context) override {
    const at::Tensor activated = megatron::differentiable_by_autograd(
        {.name = "SineBackward"}, {fc1_.forward(input_sbh, context)},
        [](const megatron::Tensors& x) { return at::sin(x[0]); });
    return fc2_.forward(activated, context);
  }

 private:
  megatron::ColumnParallelLinear fc1_;
  megatron::RowParallelLinear fc2_;
};

}  // namespace

std::vector<megatron::BlockSpec> sine_blocks(const megatron::LayerKind& /*kind*/,
                                             std::int64_t /*layer*/) {
  return {{.name = "mlp",
           .site = "mlp_bda",
           .post_norm = "post_mlp_layernorm",
           .make = megatron::make_sublayer<SineMlp>},
          {.name = "self_attention",
           .site = "self_attn_bda",
           .post_norm = "post_self_attn_layernorm",
           .make = megatron::make_sublayer<megatron::SelfAttention>}};
}
