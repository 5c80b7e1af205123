// LayerNorm (Ba et al. 2016) and RMSNorm (Zhang & Sennrich 2019), with Megatron's layernorm-1p
// (weight stored minus one).
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "megatron/config/transformer_config.h"
#include "megatron/nn/module.h"
#include "megatron/ops/random_site.h"
#include "megatron/parallel/rank.h"

namespace megatron {

struct NormOptions {
  Normalization kind = Normalization::LayerNorm;
  double epsilon = 1e-5;
  bool weight_plus_one = false;
};

NormOptions norm_options(const TransformerConfig& config);

/// A norm whose weights belong to another module; without a weight there is none.
struct NormWeights {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;
  NormOptions options;
};

/// Normalises the last dimension of x; weight [h], bias [h] or null (RMSNorm). The result has the
/// weight's dtype; x may be float32 above 16-bit weights. 16-bit weights are read as the
/// optimizer's float32 copies where there are.
at::Tensor norm(const at::Tensor& x, Parameter& weight, Parameter* bias,
                const NormOptions& options);

struct SumAndNorm {
  at::Tensor sum, normalised;  ///< without a norm the sum is both
};

/// {x, norm(x)}. Who reads x from here on instead of x itself lets the norm's backward pass add its
/// gradient.
SumAndNorm norm_with_residual(const at::Tensor& x, const NormWeights& weights);

/// {sum, norm(sum)} of sum = stream + dropout(branch), [s, b, h], in one pass on the CPU, backward
/// too; see dropout_add.
SumAndNorm dropout_add_norm(const at::Tensor& stream, const at::Tensor& branch,
                            const DropoutSite& site, std::int64_t s_start,
                            const NormWeights& weights);

/// What a norm stands on, which decides whether each tensor-parallel rank sees the whole gradient
/// of its weight.
enum class NormInput {
  hidden,  ///< hidden rows: a part of the gradient with sequence parallelism
  heads    ///< the rank's queries or keys: always a part
};

/// A norm of its own.
class Norm : public Module {
 public:
  Norm(Module* parent, std::string_view name, const TransformerConfig& config, std::int64_t size,
       const Rank& rank, NormInput place = NormInput::hidden);
  at::Tensor forward(const at::Tensor& x) const { return norm(x, weight_, bias_, options_); }
  NormWeights weights() const { return {&weight_, bias_, options_}; }

 private:
  Parameter& weight_;
  Parameter* bias_;
  NormOptions options_;
};

/// Declarations shared by Norm and by layers that carry one.
ParameterSpec norm_weight_spec(const TransformerConfig& config, std::int64_t size, const Rank& rank,
                               NormInput place = NormInput::hidden);
ParameterSpec norm_bias_spec(std::int64_t size, const Rank& rank,
                             NormInput place = NormInput::hidden);

}  // namespace megatron
