// The experts of a layer that all tokens take (DeepSeekMoE, Dai et al. 2024).
#pragma once

#include "megatron/nn/layer_spec.h"
#include "megatron/nn/mlp.h"

namespace megatron {

/// Experts that all tokens take, sharded over tp like an MLP, with an optional gate σ(x·w).
class SharedExperts : public Mlp {
 public:
  SharedExperts(Module* parent, const LayerArguments& arguments);
  at::Tensor forward(const at::Tensor& input_sbh, const ForwardContext& context) override;

 private:
  Parameter* gate_weight_ = nullptr;  ///< [1, h]
};

}  // namespace megatron
