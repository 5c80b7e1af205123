// Megatron's initialisation rules: N(0, σ) for inputs, N(0, σ/√(2·layers)) for projections back
// into the residual stream, or Glorot.
#pragma once

#include "megatron/params/parameter.h"

namespace megatron {

struct TransformerConfig;

/// Initialisation of word and position embeddings.
Init embedding_init(const TransformerConfig& config);
/// Initialisation of QKV, fc1 and the untied output layer, for a global weight [out, in].
Init input_init(const TransformerConfig& config, const Shape& shape);
/// Initialisation of the attention output projection and fc2, for a global weight [out, in].
Init residual_init(const TransformerConfig& config, const Shape& shape);

/// The declaration of a weight [out, in] with input_init().
ParameterSpec input_weight_spec(const TransformerConfig& config, Sharding sharding);
/// The same for a weight that is read only by linear(), which may be packed.
ParameterSpec gemm_weight_spec(const TransformerConfig& config, Sharding sharding);
/// The declaration of a bias.
ParameterSpec bias_spec(Sharding sharding);

}  // namespace megatron
