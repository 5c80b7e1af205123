// The bias that T5 adds to attention scores in place of position embeddings (Raffel et al. 2020,
// section 2.1): a learned number for each head and bucket of distances. Near distances have buckets
// of their own, farther ones share buckets of logarithmically growing size.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "megatron/nn/module.h"
#include "megatron/parallel/axis.h"

namespace megatron {

struct TransformerConfig;

/// The table relative_attention_bias [buckets, heads], whose heads are sharded over tp.
class RelativePositions : public Module {
 public:
  /// `is_bidirectional`: keys behind the query have half of the buckets; otherwise one.
  RelativePositions(Module* parent, std::string_view name, const TransformerConfig& config,
                    const Axis& tp, bool is_bidirectional, const StageHolders& holders = {});
  /// Returns AttentionOptions::distance_bias [heads of this rank, 2s − 1] of s positions, in
  /// float32 or wider. Differentiable.
  at::Tensor forward(std::int64_t num_positions) const;

 private:
  const std::int64_t num_buckets_, max_distance_;
  const bool is_bidirectional_;
  ParameterModule table_;
};

/// Returns the buckets, int64, of the distances key − query from 1 − s to s − 1, with the
/// arithmetic of transformers and megatron-core.
at::Tensor relative_buckets(std::int64_t num_positions, std::int64_t num_buckets,
                            std::int64_t max_distance, bool is_bidirectional);

}  // namespace megatron
