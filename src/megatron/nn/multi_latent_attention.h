// Multi-latent attention (DeepSeek-V2, 2024, §2.1): queries, keys and values are projections of
// latents of low rank, and positions rotate a few channels of each query and one key, which all
// heads share.
#pragma once

#include <optional>
#include <vector>

#include "megatron/nn/attention.h"
#include "megatron/nn/linear_layers.h"
#include "megatron/ops/differentiable.h"

namespace megatron {

/// The block of a layer with multi-latent attention. Its norm is the layer's input_layernorm. Every
/// rank of tp holds the projections to the latents whole; those of the latents are sharded by
/// heads.
class MultiLatentAttention : public Attention {
 public:
  /// `parent` is the transformer layer.
  MultiLatentAttention(Module* parent, std::string_view name, const LayerArguments& arguments);
  NormWeights input_norm() const override;
  at::Tensor forward(const at::Tensor& input_sbh, const ForwardContext& context) override;
  std::vector<ScaledRows> row_factors(const std::vector<double>& eta, double alpha) const override;

 private:
  /// Returns the normed latents of queries, which without a latent are the input, and of keys and
  /// values, and the key that heads share.
  Tensors latents(const at::Tensor& input_sbh, const ForwardContext& context) const;
  /// Returns q, k and v of this rank's heads.
  AttentionInputs heads(const Tensors& latents, const ForwardContext& context) const;
  /// Returns attention [rows, 1, n·dv] in generation whose caches keep the latents and the key that
  /// heads share. The projections of keys and values become those of queries and of results, so
  /// that all heads attend to the latents. Several first tokens of a sequence attend to their own
  /// keys and values, which are narrower.
  at::Tensor attend_to_latents(const Tensors& latents, const ForwardContext& context);

  std::optional<Norm> input_layernorm_;
  std::optional<ParameterModule> linear_q_down_proj_;
  ColumnParallelLinear linear_q_;  ///< linear_q_up_proj, or linear_q_proj without a latent
  ParameterModule linear_kv_down_proj_;
  ColumnParallelLinear linear_kv_up_proj_;
  RowParallelLinear linear_proj_;
};

/// Returns m²/√(qk_head_dim + qk_pos_emb_head_dim), where m is YaRN's factor of mscale_all_dim.
double latent_attention_scale(const TransformerConfig& config);

}  // namespace megatron
