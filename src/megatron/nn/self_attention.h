// Self-attention: fused QKV projection (the rows of a query group are its q heads, their gates if
// there are any, k and v), optional norms of q and k, rotary embedding, attention and output
// projection.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "megatron/config/layer_plan.h"
#include "megatron/nn/layer_spec.h"
#include "megatron/nn/linear_layers.h"
#include "megatron/nn/query_key_norm.h"
#include "megatron/ops/core_attention.h"
#include "megatron/ops/query_key_value.h"

namespace megatron {

struct TransformerConfig;

/// The attention block of a transformer layer, sharded over tp by query groups.
class SelfAttention : public Sublayer {
 public:
  SelfAttention(Module* parent, std::string_view name, const LayerArguments& arguments);
  NormWeights input_norm() const override { return linear_qkv_.input_norm(); }
  at::Tensor forward(const at::Tensor& input_sbh, const ForwardContext& context) override;

  /// Begins to record the largest score of each head in forward passes.
  void record_max_scores();
  /// Ends that. Returns float32 [heads of this rank], −∞ of a head that saw nothing.
  at::Tensor take_max_scores() { return std::exchange(max_scores_, at::Tensor()); }
  std::int64_t first_head() const { return first_head_; }  ///< of this rank, in the model
  Parameter& qkv_weight() const { return linear_qkv_.weight(); }
  /// Returns the factors η^α and η^(1 − α) of the rows of q and k in this rank's QKV weight, and 1
  /// of the others, from η of each query group of the model.
  at::Tensor row_factors(const std::vector<double>& eta, double alpha) const;

 private:
  /// Splits the projection, and normalizes and rotates q and k. Sets the gate of the output [s, b,
  /// n·d] if there is one.
  QueryKeyValue split(const at::Tensor& mixed, const ForwardContext& context,
                      at::Tensor& gate) const;
  void normalize(QueryKeyValue& heads, const ForwardContext& context) const;
  /// Attention of the queries of this rank to the keys of all ranks that share the sequences.
  at::Tensor attend(const AttentionInputs& inputs, const ForwardContext& context);
  AttentionOptions attention_options(const ForwardContext& context, const at::Device& device);
  /// The sinks of this rank's heads; undefined with a plain softmax.
  at::Tensor sinks(const at::TensorOptions& type) const;

  const TransformerConfig& config_;
  const Rank& rank_;
  LayerKind kind_;
  bool causal_;
  std::int64_t heads_, groups_, first_head_;  ///< counts and first head of this rank
  ColumnParallelLinear linear_qkv_;
  std::unique_ptr<QueryKeyNorm> q_layernorm_, k_layernorm_;
  std::unique_ptr<ParameterModule> core_attention_;  ///< the trained sinks, or null
  RowParallelLinear linear_proj_;
  at::Tensor alibi_slopes_;
  at::Tensor max_scores_;  ///< undefined unless they are recorded
};

/// Returns ALiBi's slopes for n heads (Press et al. 2022): a geometric series for a power of two,
/// otherwise that of the next lower power and every second slope of the next higher one.
at::Tensor alibi_slopes(std::int64_t num_heads);

}  // namespace megatron
