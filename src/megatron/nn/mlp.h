// The MLP block: fc2(f(fc1(x))), with a gated or an ungated activation f.
#pragma once

#include "megatron/nn/forward_context.h"
#include "megatron/nn/layer_spec.h"
#include "megatron/nn/linear_layers.h"

namespace megatron {

struct TransformerConfig;

/// The MLP of a transformer layer, sharded over tp.
class Mlp : public Sublayer {
 public:
  Mlp(Module* parent, std::string_view name, const LayerArguments& arguments);
  /// An MLP with `width` hidden channels.
  Mlp(Module* parent, std::string_view name, const LayerArguments& arguments, std::int64_t width);
  NormWeights input_norm() const override { return linear_fc1_.input_norm(); }
  at::Tensor forward(const at::Tensor& input_sbh, const ForwardContext& context) override;

 private:
  const TransformerConfig& config_;
  ColumnParallelLinear linear_fc1_;
  RowParallelLinear linear_fc2_;
};

}  // namespace megatron
