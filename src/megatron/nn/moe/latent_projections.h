// The projections of LatentMoE: routed experts work on fewer channels than the layer.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <utility>

#include "megatron/nn/layer_spec.h"
#include "megatron/nn/module.h"
#include "megatron/parallel/rank.h"

namespace megatron {

/// Two projections around the experts, so that they work on fewer channels (LatentMoE).
class LatentProjections {
 public:
  LatentProjections(Module* parent, const LayerArguments& arguments);
  at::Tensor down(const at::Tensor& x) const;  ///< [.., h] → [.., latent]
  at::Tensor up(const at::Tensor& x) const;    ///< [.., latent] → [.., h]

 private:
  /// A weight that every rank of tp holds whole.
  class Projection : public Module {
   public:
    Projection(Module* parent, std::string_view name, ParameterSpec spec, const Rank& rank)
        : Module(parent, name), weight(declare("weight", std::move(spec), rank.tp)) {}
    Parameter& weight;
  };
  Projection fc1_latent_proj_, fc2_latent_proj_;
};

}  // namespace megatron
