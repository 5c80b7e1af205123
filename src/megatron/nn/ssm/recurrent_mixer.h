// What Mamba-2 and the gated delta net share: a projection of the input to queries, keys, values,
// an output gate and the gates of the state; a short causal convolution of the former; the linear
// recurrence of a state per head; a gated norm; and a projection back.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "megatron/config/layer_plan.h"
#include "megatron/config/recurrent_config.h"
#include "megatron/nn/layer_spec.h"
#include "megatron/nn/linear_layers.h"
#include "megatron/ops/gated_norm.h"
#include "megatron/ops/linear_attention.h"
#include "megatron/ops/row_pieces.h"
#include "megatron/ops/sequence_cache.h"

namespace megatron {

/// What a recurrent layer remembers of a sequence: the last inputs of the convolution [channels of
/// this rank, taps − 1] and the state [heads of this rank, key_dim, value_dim] in float32.
struct RecurrentCache : LayerCache {
  at::Tensor convolution, state;
};

/// A block with a state per head, whose cost is linear in the length of a sequence. Its heads are
/// sharded over tp. Ranks that share a group of heads each hold its queries and keys. The states of
/// packed sequences and documents begin with zeros.
class RecurrentMixer : public Sublayer {
 public:
  NormWeights input_norm() const override { return in_proj_.input_norm(); }
  at::Tensor forward(const at::Tensor& input_sbh, const ForwardContext& context) override;

 protected:
  /// How a kind of layer differs in its parameters.
  struct Layout {
    MixerKind kind;
    /// The rows of the input projection, in order; those of the convolution are neighbours.
    std::vector<RecurrentPart> parts;
    bool conv_bias = false;
    Init dt_bias;
    std::string_view norm;  ///< name of the gated norm, whose weight is [norm_width]
    std::int64_t norm_width = 0;
    bool norm_is_sharded = false;  ///< its weight over tp
    GatedNormOptions norm_options;
    LinearAttentionRule rule;
  };
  RecurrentMixer(Module* parent, std::string_view name, const LayerArguments& arguments,
                 const Layout& layout);

  /// The gates [s, b, heads of this rank] of the state, in compute_type(): the logarithm of its
  /// decay and what multiplies a row that enters it.
  struct Gates {
    at::Tensor decay, input;
  };
  /// Returns the gates from the columns of the projection that are theirs.
  virtual Gates gates(const at::Tensor& columns) const = 0;
  /// Returns what the gated norm reads: the output of the recurrence [s, b, heads, value_dim], and
  /// what skips it.
  virtual at::Tensor with_skip(const at::Tensor& out, const at::Tensor& /*value*/) const {
    return out;
  }

  const TransformerConfig& config_;
  const Rank& rank_;
  const RecurrentSizes sizes_;  ///< of this rank
  Parameter &a_log_, &dt_bias_;

 private:
  /// Returns the rows that belong together: each sequence, and each document.
  RowPieces pieces(const ForwardContext& context) const;
  /// Returns the output of the recurrence, from the caches in generation.
  at::Tensor recur(const at::Tensor& projected, const ForwardContext& context) const;

  const Layout layout_;
  ColumnParallelLinear in_proj_;
  ParameterModule conv1d_;
  Parameter* conv_bias_;
  ParameterModule norm_;
  RowParallelLinear out_proj_;
};

}  // namespace megatron
