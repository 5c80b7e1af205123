// The mixture-of-experts block of a layer (Shazeer et al. 2017; DeepSeekMoE, Dai et al. 2024):
//
//   y = Σ_e p_e·expert_e(norm(x)) + shared_experts(norm(x))
//
// where the router chooses k experts e for each token. With shared_expert_overlap the shared
// experts run while tokens travel.
#pragma once

#include <optional>

#include "megatron/nn/layer_spec.h"
#include "megatron/nn/moe/experts.h"
#include "megatron/nn/moe/router.h"
#include "megatron/nn/moe/token_dispatcher.h"

namespace megatron {

struct TransformerConfig;

/// The block of a layer with experts. Its norm is the layer's pre_mlp_layernorm.
class MoeLayer : public Sublayer {
 public:
  /// `parent` is the transformer layer.
  MoeLayer(Module* parent, std::string_view name, const LayerArguments& arguments);
  NormWeights input_norm() const override;
  /// Collective over tp, tp-cp and etp-ep, and over dp with global_aux_loss.
  at::Tensor forward(const at::Tensor& input_sbh, const ForwardContext& context) override;
  /// Says in which order the ranks of ep hold the experts. The caller moves the weights.
  void place_experts(const ExpertOrder& order);

  std::int64_t index() const { return index_; }  ///< of the layer in the whole model, from 0
  Router& router() { return router_; }
  Experts& experts() { return experts_; }

 private:
  const TransformerConfig& config_;
  const Rank& rank_;
  const std::int64_t index_;
  std::optional<Norm> pre_mlp_layernorm_;
  Router router_;
  std::optional<ParameterModule> fc1_latent_proj_,
      fc2_latent_proj_;  ///< around the experts (LatentMoE)
  Experts experts_;
  std::optional<SharedExperts> shared_experts_;
  TokenDispatcher dispatcher_;
};

}  // namespace megatron
