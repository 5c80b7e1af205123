// Self-attention: fused QKV projection (rows per query group: its q heads, k, v), optional norms on
// q and k, rotary embedding, attention, output.
#pragma once

#include <memory>

#include "megatron/nn/layer_spec.h"
#include "megatron/nn/linear_layers.h"
#include "megatron/nn/norm.h"
#include "megatron/ops/core_attention.h"
#include "megatron/ops/query_key_value.h"

namespace megatron {

class SelfAttention : public Mixer {
 public:
  SelfAttention(Module* parent, std::string_view name, const LayerArguments& arguments);
  NormWeights input_norm() const override { return linear_qkv_.input_norm(); }
  at::Tensor forward(const at::Tensor& input_sbh, const ForwardContext& context) override;

 private:
  QueryKeyValue split(const at::Tensor& mixed, const ForwardContext& context) const;
  AttentionOptions attention_options(const ForwardContext& context, const at::Device& device);

  const TransformerConfig& config_;
  std::int64_t layer_index_;
  std::int64_t heads_, groups_, first_head_;  ///< of this rank
  ColumnParallelLinear linear_qkv_;
  std::unique_ptr<Norm> q_layernorm_, k_layernorm_;
  RowParallelLinear linear_proj_;
  at::Tensor alibi_slopes_;
};

/// ALiBi's geometric slopes for n heads (Press et al. 2022), powers of two and the interleaved
/// rest.
at::Tensor alibi_slopes(std::int64_t num_heads);

}  // namespace megatron
