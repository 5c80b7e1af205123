// What all attention blocks share: the heads of this rank, and attention of their queries to the
// keys of all ranks that share the sequences.
#pragma once

#include "megatron/nn/layer_spec.h"
#include "megatron/ops/core_attention.h"

namespace megatron {

/// A block that makes queries, keys and values and attends. Its heads are sharded over tp.
class Attention : public Sublayer {
 protected:
  Attention(Module* parent, std::string_view name, const LayerArguments& arguments);
  /// Returns attention [s, b, n·dv] of the queries of this rank, from the caches in generation. Its
  /// scores are multiplied by TransformerConfig::softmax_scale if that is set, else by `scale`. It
  /// is the node core_attn.
  at::Tensor attend(const AttentionInputs& inputs, double scale, const ForwardContext& context);
  AttentionOptions attention_options(const ForwardContext& context, const at::Device& device);

  const TransformerConfig& config_;
  const Rank& rank_;
  const std::int64_t layer_index_;
  const bool causal_;
  const std::int64_t heads_, first_head_;  ///< count and first head of this rank
  at::Tensor alibi_slopes_;                ///< of the heads, or undefined
};

}  // namespace megatron
