// LayerNorm (Ba et al. 2016) and RMSNorm (Zhang & Sennrich 2019), with Megatron's layernorm-1p
// (weight stored minus one).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "megatron/config/transformer_enums.h"
#include "megatron/nn/module.h"
#include "megatron/ops/dropout.h"

namespace megatron {

struct Rank;
struct TransformerConfig;

/// Kind and constants of a norm.
struct NormOptions {
  Normalization kind = Normalization::LayerNorm;
  double epsilon = 1e-5;
  bool weight_plus_one = false;
};

/// Returns the options that `config` asks for.
NormOptions norm_options(const TransformerConfig& config);

/// A norm whose weights belong to another module. A null weight means no norm.
struct NormWeights {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;
  NormOptions options = {};
  const Module* owner = nullptr;  ///< set together with the weight
  const char* op = "";            ///< name of the norm in the owner, for hooks
};

/// Normalises the last dimension of x with weight [h] and bias [h], which is null for RMSNorm and
/// may be for LayerNorm. The result has the weight's dtype; x may be float32 when the weight has 16
/// bits. 16-bit weights are read through Parameter::precise_value().
at::Tensor norm(const at::Tensor& x, Parameter& weight, Parameter* bias,
                const NormOptions& options);

/// A residual stream and its norm.
struct SumAndNorm {
  at::Tensor sum, normalised;  ///< without a norm both are the sum
};

/// Returns {x, norm(x)}. Later consumers should read the returned x, so that the backward pass of
/// the norm adds their gradient.
SumAndNorm norm_with_residual(const at::Tensor& x, const NormWeights& weights);

/// Returns {sum, norm(sum)} with sum = stream + dropout(branch), all [s, b, h]. The CPU runs one
/// fused pass in forward and in backward. See dropout_add() for the coordinates.
SumAndNorm dropout_add_norm(const at::Tensor& stream, const at::Tensor& branch,
                            const DropoutSite& site, const NormWeights& weights);

/// The input of a norm. It decides whether each tensor-parallel rank computes the whole gradient of
/// the norm's weight.
enum class NormInput {
  hidden,  ///< hidden rows; each rank has a part of the gradient with sequence parallelism
  heads    ///< the rank's queries or keys; each rank always has a part of the gradient
};

/// A norm as a module with its own weights.
class Norm : public Module {
 public:
  Norm(Module* parent, std::string_view name, const TransformerConfig& config, std::int64_t size,
       const Rank& rank, NormInput place = NormInput::hidden);
  at::Tensor forward(const at::Tensor& x) const { return norm(x, weight_, bias_, options_); }
  NormWeights weights() const { return {&weight_, bias_, options_, this}; }

 private:
  Parameter& weight_;
  Parameter* bias_;
  NormOptions options_;
};

/// The weight declarations of Norm and of layers that own a norm's weights.
ParameterSpec norm_weight_spec(const TransformerConfig& config, std::int64_t size, const Rank& rank,
                               NormInput place = NormInput::hidden);
ParameterSpec norm_bias_spec(std::int64_t size, const Rank& rank,
                             NormInput place = NormInput::hidden);

}  // namespace megatron
