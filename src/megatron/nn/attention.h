// What all attention blocks share: the heads of this rank, and attention of their queries to the
// keys of all ranks that share the sequences.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/config/layer_plan.h"
#include "megatron/nn/layer_spec.h"
#include "megatron/nn/relative_positions.h"
#include "megatron/ops/core_attention.h"

namespace megatron {

/// Factors [rows], in float64, of the rows of a weight of this rank.
struct ScaledRows {
  Parameter& weight;
  at::Tensor factors;
};

/// A block that makes queries, keys and values and attends. Its heads are sharded over tp.
class Attention : public Sublayer {
 public:
  /// Begins to record the largest score of each head in forward passes.
  void record_max_scores();
  /// Ends that. Returns float32 [heads of this rank], −∞ of a head that saw nothing.
  at::Tensor take_max_scores() { return std::exchange(max_scores_, at::Tensor()); }
  std::int64_t first_head() const { return first_head_; }  ///< of this rank, in the model
  /// Returns what scales the scores of each query group of the model by its `eta` ≤ 1: queries by
  /// η^alpha and keys by η^(1 − alpha).
  virtual std::vector<ScaledRows> row_factors(const std::vector<double>& eta,
                                              double alpha) const = 0;

 protected:
  /// With `is_cross` keys and values are another sequence's, whose documents are the encoder's.
  Attention(Module* parent, std::string_view name, const LayerArguments& arguments,
            bool is_cross = false);
  /// Returns attention [s, b, n·dv] of the queries of this rank, from the caches in generation. Its
  /// scores are multiplied by TransformerConfig::softmax_scale if that is set, else by `scale`. It
  /// is the node core_attn.
  at::Tensor attend(const AttentionInputs& inputs, double scale, const ForwardContext& context);
  /// Returns the options of one pass over queries like `query`. The sinks among them record their
  /// gradient.
  AttentionOptions attention_options(const at::Tensor& query, double scale,
                                     const ForwardContext& context);

  const TransformerConfig& config_;
  const Rank& rank_;
  const LayerKind kind_;
  const bool causal_, is_cross_;
  const std::int64_t heads_, first_head_;  ///< count and first head of this rank
  at::Tensor alibi_slopes_;                ///< of the heads, or undefined

 private:
  /// Returns the sinks of this rank's heads; undefined with a plain softmax.
  at::Tensor sinks(const at::TensorOptions& type) const;

  std::unique_ptr<ParameterModule> core_attention_;  ///< the trained sinks, or null
  std::unique_ptr<RelativePositions> positions_;     ///< the bias of this layer alone, or null
  at::Tensor max_scores_;                            ///< undefined unless they are recorded
};

}  // namespace megatron
