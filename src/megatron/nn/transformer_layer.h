// One transformer layer and the stack of them. Pre-norm: x + f(norm(x)); post-norm (Vaswani et al.
// 2017): norm(x + f(x)).
#pragma once

#include <memory>
#include <vector>

#include "megatron/nn/layer_spec.h"
#include "megatron/nn/norm.h"

namespace megatron {

class TransformerLayer : public Module {
 public:
  TransformerLayer(Module* parent, std::string_view name, const TransformerLayerSpec& spec,
                   const LayerArguments& arguments);
  at::Tensor forward(const at::Tensor& hidden_sbh, const ForwardContext& context);

 private:
  /// A block's input as the layer has it: the stream, and what the block takes of it.
  SumAndNorm add_residual(const at::Tensor& out, const SumAndNorm& input, std::string_view site,
                          const Norm* post_norm, const NormWeights& next_norm,
                          const ForwardContext& context) const;

  const TransformerConfig& config_;
  std::unique_ptr<Mixer> self_attention_;
  std::unique_ptr<Norm> post_self_attn_layernorm_;
  std::unique_ptr<FeedForward> mlp_;
  std::unique_ptr<Norm> post_mlp_layernorm_;
};

/// The layers of this rank's stages and, on the last one and with pre-norm, the final norm.
class TransformerBlock : public Module {
 public:
  /// `layers`: which of the model's layers, in the order of the model.
  TransformerBlock(Module* parent, std::string_view name, const TransformerLayerSpec& spec,
                   const LayerArguments& arguments, const std::vector<std::int64_t>& layers,
                   bool has_final_norm);
  /// Through `count` of the layers, from the `begin`-th that this rank holds.
  at::Tensor forward(at::Tensor hidden_sbh, const ForwardContext& context, std::int64_t begin,
                     std::int64_t count);
  /// The final norm; nothing with post-norm.
  at::Tensor finish(const at::Tensor& hidden_sbh, const ForwardContext& context) const;
  std::int64_t num_layers() const { return static_cast<std::int64_t>(layers_.size()); }

 private:
  std::vector<std::unique_ptr<TransformerLayer>> layers_;
  std::unique_ptr<Norm> final_layernorm_;
};

}  // namespace megatron
