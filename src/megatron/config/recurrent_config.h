// The recurrent layers of a hybrid model as plain structs: Mamba-2 (Dao & Gu 2024) and the gated
// delta net (Yang et al. 2025). Members are Megatron-LM's settings without their prefixes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "megatron/config/transformer_enums.h"

namespace megatron {

/// The most positions that a convolution reads, which are its taps (ops/causal_conv.h).
inline constexpr std::int64_t kMostConvTaps = 8;

/// The Mamba-2 layers (--mamba-…).
struct MambaConfig {
  std::int64_t state_dim = 128;  ///< rows of the state of a head
  std::int64_t head_dim = 64;    ///< columns of the state of a head
  std::int64_t num_groups = 8;   ///< of heads that share B and C
  std::int64_t num_heads = 0;    ///< 0: 2·hidden / head_dim
  std::int64_t conv_kernel_dim = 4;
  /// Groups of channels that the gated norm normalizes on their own; 0: num_groups.
  std::int64_t norm_groups = 0;
  double norm_epsilon = 1e-5;  ///< of the gated norm
  /// Shares of the layers of a hybrid model without a pattern; the others are Mamba-2.
  double attention_ratio = 0, mlp_ratio = 0;

  std::int64_t num_norm_groups() const { return norm_groups > 0 ? norm_groups : num_groups; }
};

/// The layers with linear attention (--linear-…) and which layers of two blocks have it.
struct LinearAttentionConfig {
  AttentionVariant variant = AttentionVariant::none;
  /// N: every N-th layer has full attention; or a list expression with 1 = linear attention. Empty:
  /// every layer has linear attention.
  std::string freq = {};
  std::int64_t conv_kernel_dim = 4;
  std::int64_t key_head_dim = 128, value_head_dim = 128;
  std::int64_t num_key_heads = 16, num_value_heads = 32;
  bool norm_1p = true;  ///< the gated norm follows --apply-layernorm-1p; Qwen3-Next's does not
  std::optional<double> norm_epsilon = {};  ///< of the gated norm; default: that of other norms
  bool allow_neg_eigval = false;            ///< what enters a state is multiplied by up to 2
};

/// The sizes of a recurrent layer, of all ranks.
struct RecurrentSizes {
  std::int64_t groups = 0;  ///< of heads that share queries and keys
  std::int64_t heads = 0;   ///< each with a state [key_dim, value_dim]
  std::int64_t key_dim = 0, value_dim = 0;
  std::int64_t taps = 0;   ///< of the convolution
  std::int64_t gates = 1;  ///< numbers of a row that gate the state of a head

  /// Returns the sizes of one of `ranks` tensor-parallel ranks, of which several may share a group.
  RecurrentSizes of_rank(std::int64_t ranks) const {
    RecurrentSizes own = *this;
    own.groups = std::max<std::int64_t>(1, groups / ranks);
    own.heads = heads / ranks;
    return own;
  }
  std::int64_t key_channels() const { return groups * key_dim; }
  std::int64_t value_channels() const { return heads * value_dim; }
  std::int64_t conv_channels() const { return 2 * key_channels() + value_channels(); }
  /// Returns the rows of the input projection: the convolution's, the output gate's and `gates`.
  std::int64_t in_proj_rows() const { return conv_channels() + value_channels() + gates * heads; }
};

}  // namespace megatron
