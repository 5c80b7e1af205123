// The norm of queries or keys before attention: over each head (Dehghani et al. 2023), by weights
// that heads share or that each has for itself, or over all heads of a token, as OLMo 2 and OLMoE
// have it (Muennighoff et al. 2024, §4.2.5).
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "megatron/config/transformer_enums.h"
#include "megatron/nn/layer_spec.h"
#include "megatron/nn/norm.h"

namespace megatron {

/// The norm of config.qk_layernorm_scope. Over one head, the weight [head size] is equal on all
/// ranks of tp. Over all heads, the weight [heads · head size] is sharded over tp as the heads are,
/// and so are the weights of each head [heads, head size].
class QueryKeyNorm : public Module {
 public:
  /// `num_heads` is the number of query heads or of query groups of the whole model.
  QueryKeyNorm(Module* parent, std::string_view name, const LayerArguments& arguments,
               std::int64_t num_heads);

  /// Normalizes x [s, b, heads of this rank, head size]. Over all heads it is collective over tp.
  at::Tensor forward(const at::Tensor& x_sbnd) const;

 private:
  at::Tensor by_own_weights(const at::Tensor& x_sbnd) const;
  at::Tensor over_sharded_heads(const at::Tensor& x) const;

  const Axis tp_;
  const QkNormScope scope_;
  const std::int64_t num_columns_;  ///< of the whole model
  const double copies_;             ///< number of ranks that hold the same heads
  Parameter& weight_;
  Parameter* bias_;
  const NormOptions options_;
};

}  // namespace megatron
