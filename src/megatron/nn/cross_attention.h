// Cross-attention: the queries of a decoder attend to the rows that the encoder returns (Vaswani et
// al. 2017, section 3.2.3). Its norm has weights of its own, under Megatron's name.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "megatron/nn/attention.h"
#include "megatron/nn/linear_layers.h"

namespace megatron {

/// The key under which cross attention finds the encoder's rows (ForwardContext::published()).
inline constexpr const char* kEncoderRows = "encoder";

/// The block between self-attention and MLP. Its heads are sharded over tp; the rows of linear_kv
/// are k and v of one head after another. Positions do not matter.
class CrossAttention : public Attention {
 public:
  CrossAttention(Module* parent, std::string_view name, const LayerArguments& arguments);
  NormWeights input_norm() const override { return norm_ ? norm_->weights() : NormWeights{}; }
  at::Tensor forward(const at::Tensor& input_sbh, const ForwardContext& context) override;
  std::vector<ScaledRows> row_factors(const std::vector<double>& eta, double alpha) const override;

 private:
  std::unique_ptr<Norm> norm_;  ///< null where the layer normalizes its outputs instead
  ColumnParallelLinear linear_q_, linear_kv_;
  RowParallelLinear linear_proj_;
};

}  // namespace megatron
