// One transformer layer and the stack of them. Pre-norm: x + f(norm(x)); post-norm (Vaswani et al. 2017): norm(x + f(x)).
#pragma once

#include <memory>
#include <vector>

#include "megatron/transformer/layer_spec.h"
#include "megatron/transformer/norm.h"

namespace megatron {

class TransformerLayer : public Module {
 public:
  TransformerLayer(Module* parent, std::string_view name, const TransformerLayerSpec& spec, const LayerArguments& arguments);
  at::Tensor forward(const at::Tensor& hidden_sbh, const ForwardContext& context);

 private:
  at::Tensor add_residual(const BlockOutput& block, const at::Tensor& input, std::string_view site, const Norm* post_norm,
                          const ForwardContext& context) const;

  const TransformerConfig& config_;
  std::unique_ptr<Mixer> self_attention_;
  std::unique_ptr<Norm> post_self_attn_layernorm_;
  std::unique_ptr<FeedForward> mlp_;
  std::unique_ptr<Norm> post_mlp_layernorm_;
};

/// The layers of a stage and, on the last one and with pre-norm, the final norm.
class TransformerBlock : public Module {
 public:
  TransformerBlock(Module* parent, std::string_view name, const TransformerLayerSpec& spec, const TransformerConfig& config, const Rank& rank);
  at::Tensor forward(at::Tensor hidden_sbh, const ForwardContext& context);
  std::int64_t num_layers() const { return static_cast<std::int64_t>(layers_.size()); }

 private:
  std::vector<std::unique_ptr<TransformerLayer>> layers_;
  std::unique_ptr<Norm> final_layernorm_;
};

}  // namespace megatron
