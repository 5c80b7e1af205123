// The projections of LatentMoE: routed experts work on fewer channels than the layer.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/nn/layer_spec.h"
#include "megatron/nn/module.h"

namespace megatron {

/// Two projections around the experts, so that they work on fewer channels (LatentMoE).
class LatentProjections {
 public:
  LatentProjections(Module* parent, const LayerArguments& arguments);
  at::Tensor down(const at::Tensor& x) const;  ///< [.., h] → [.., latent]
  at::Tensor up(const at::Tensor& x) const;    ///< [.., latent] → [.., h]

 private:
  ParameterModule fc1_latent_proj_, fc2_latent_proj_;  ///< whole on every rank of tp
};

}  // namespace megatron
