// Self-attention: fused QKV projection (the rows of a query group are its q heads, their gates if
// there are any, k and v), optional norms of q and k, rotary embedding, attention and output
// projection.
#pragma once

#include <memory>
#include <vector>

#include "megatron/nn/attention.h"
#include "megatron/nn/linear_layers.h"
#include "megatron/nn/query_key_norm.h"
#include "megatron/ops/query_key_value.h"

namespace megatron {

/// The attention block of a transformer layer, sharded over tp by query groups.
class SelfAttention : public Attention {
 public:
  SelfAttention(Module* parent, std::string_view name, const LayerArguments& arguments);
  NormWeights input_norm() const override { return linear_qkv_.input_norm(); }
  at::Tensor forward(const at::Tensor& input_sbh, const ForwardContext& context) override;
  std::vector<ScaledRows> row_factors(const std::vector<double>& eta, double alpha) const override;

 private:
  /// Splits the projection, and normalizes and rotates q and k. Sets the gate of the output [s, b,
  /// n·d] if there is one.
  QueryKeyValue split(const at::Tensor& mixed, const ForwardContext& context,
                      at::Tensor& gate) const;
  void normalize(QueryKeyValue& heads, const ForwardContext& context) const;

  std::int64_t groups_;  ///< of this rank
  ColumnParallelLinear linear_qkv_;
  std::unique_ptr<QueryKeyNorm> q_layernorm_, k_layernorm_;
  RowParallelLinear linear_proj_;
};

/// Returns ALiBi's slopes for n heads (Press et al. 2022): a geometric series for a power of two,
/// otherwise that of the next lower power and every second slope of the next higher one.
at::Tensor alibi_slopes(std::int64_t num_heads);

}  // namespace megatron
