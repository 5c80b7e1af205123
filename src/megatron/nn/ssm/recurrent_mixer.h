// What Mamba-2 and the gated delta net share: a projection of the input to queries, keys, values, a
// gate of the output and gates of the state; a short causal convolution of the first three; the
// linear recurrence of a state per head; a gated norm; and a projection back.
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
/// this rank, taps − 1] and the state [heads of this rank, key_dim, value_dim] in compute_type().
struct RecurrentCache : LayerCache {
  at::Tensor convolution, state;  ///< undefined before the first token
  std::int64_t length = 0;        ///< tokens of the sequence that they have seen
  double num_bytes() const override {
    return static_cast<double>(convolution.nbytes() + state.nbytes());
  }
};

/// How a kind of recurrent layer differs in its parameters and operators. The rows of the input
/// projection of Mamba-2 are z|x|B|C|dt, and those of a gated delta net q|k|v|z|β|α: values x or v,
/// keys B or k, queries C or q, the gate z of the output, and gates of the state. Queries, keys and
/// values pass the convolution.
struct RecurrentLayout {
  MixerKind kind;
  Init dt_bias;               ///< initial values of the bias of the time step
  std::string_view norm;      ///< name of the gated norm
  ParameterSpec norm_weight;  ///< [value_dim], or [channels of all heads]
  GatedNormOptions norm_options;
  LinearAttentionRule rule;

  bool is_mamba() const { return kind == MixerKind::mamba; }
};

/// The heads of a rank of tp that one rank of cp computes.
struct HeadShare {
  std::int64_t rank = 0, ranks = 1;  ///< of cp
  RecurrentSizes sizes;              ///< of the share

  bool is_all() const { return ranks == 1; }
  /// Returns this share of x, of which dimension `dim` has `units` heads or groups. Ranks that
  /// share a group each have it.
  at::Tensor of(const at::Tensor& x, std::int64_t dim, std::int64_t units) const;
};

/// A block with a state per head, whose cost is linear in the length of a sequence. Its heads are
/// sharded over tp; ranks that share a group of heads each compute its queries and keys. The ranks
/// of cp exchange their rows for heads around the convolution and the recurrence, whatever
/// --cp-comm-type says. The states of packed sequences and of documents begin with zeros.
class RecurrentMixer : public Sublayer {
 public:
  NormWeights input_norm() const override { return in_proj_.input_norm(); }
  at::Tensor forward(const at::Tensor& input_sbh, const ForwardContext& context) override;

 protected:
  RecurrentMixer(Module* parent, std::string_view name, const LayerArguments& arguments,
                 RecurrentLayout layout);
  /// Returns the gates [2, s, b, heads of the share] in compute_type(): the logarithm of the decay
  /// of the state, and what multiplies a value that enters it. `columns` [s, b, …] are those of the
  /// gates of the state.
  virtual at::Tensor gates(const at::Tensor& columns, const HeadShare& share) const = 0;
  /// Adds what skips the recurrence to its output `out` [s, b, heads, value_dim], like `value`.
  virtual at::Tensor with_skip(const at::Tensor& out, const at::Tensor& /*value*/,
                               const HeadShare& /*share*/) const {
    return out;
  }
  /// Returns the share of a parameter [heads of this rank], for autograd.
  at::Tensor of_heads(Parameter& parameter, const HeadShare& share) const;

  Parameter &a_log_, &dt_bias_;  ///< [heads of this rank]

 private:
  /// What enters the recurrence: [s, b, channels of the convolution] and [s, b, gates].
  struct Columns {
    at::Tensor convolved, gated;
  };
  /// Returns the gated norm of the recurrence's output [s, b, channels of this rank]. `columns` are
  /// those of the input projection.
  at::Tensor recur(const at::Tensor& columns, const ForwardContext& context) const;
  /// Returns the output of the recurrence [s, b, channels of the share] of whole sequences.
  at::Tensor run_sequences(const Columns& columns, const HeadShare& share,
                           const ForwardContext& context) const;
  /// run_sequences() where ranks of cp have parts of the sequences: columns and result are those of
  /// this rank's rows.
  at::Tensor run_divided(const Columns& columns, const ForwardContext& context) const;
  /// Returns the heads or groups of each part of what passes the convolution, in order.
  std::vector<std::int64_t> convolved_units(const RecurrentSizes& sizes) const;
  /// Returns these parts of x, of which dimension `dim` has the channels of the convolution.
  Tensors convolved_parts(const at::Tensor& x, std::int64_t dim, const RecurrentSizes& sizes) const;
  /// Returns the share of a parameter of the convolution [channels, …].
  at::Tensor of_convolved(const at::Tensor& parameter, const HeadShare& share) const;
  at::Tensor normalized(const at::Tensor& out, const at::Tensor& gate) const;
  /// Returns what the sequences of a pass of generation have before it, stacked: the last inputs of
  /// the convolution, in the dtype of `type`, and the states.
  Tensors kept_states(const ForwardContext& context, const at::TensorOptions& type) const;
  /// Keeps the same as they are behind the pass.
  void keep_states(const Tensors& states, const ForwardContext& context) const;

  const RecurrentLayout layout_;
  const RecurrentSizes sizes_;  ///< of this rank
  const Axis& tp_;
  ColumnParallelLinear in_proj_;
  ParameterModule conv_weight_;
  std::optional<ParameterModule> conv_bias_;
  ParameterModule norm_;
  RowParallelLinear out_proj_;
};

}  // namespace megatron
