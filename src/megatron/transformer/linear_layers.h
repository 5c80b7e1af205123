// Linear layers over the tensor-parallel axis: column-parallel (output features split) and row-parallel (input features split).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>

#include "megatron/config/transformer_config.h"
#include "megatron/transformer/module.h"
#include "megatron/transformer/norm.h"

namespace megatron {

/// y = norm(x)·Wᵀ + b with W [out, in] split over its rows; the norm in front is optional and carries Transformer Engine's names
/// (layer_norm_weight, layer_norm_bias).
class ColumnParallelLinear : public Module {
 public:
  struct Options {
    std::int64_t in = 0, out = 0;
    std::vector<ShardBlock> blocks;  ///< of the rows, as in Sharding
    std::int64_t repeats = 1;
    bool bias = true;
    bool with_norm = false;
  };
  struct Output {
    at::Tensor y;           ///< [s, b, out / tp]
    at::Tensor normalised;  ///< input of the product: norm(x), or x without a norm
  };
  ColumnParallelLinear(Module* parent, std::string_view name, const TransformerConfig& config, const Axis& tp, Options options);
  Output forward(const at::Tensor& x) const;

 private:
  Parameter* norm_weight_ = nullptr;
  Parameter* norm_bias_ = nullptr;
  Parameter& weight_;
  Parameter* bias_ = nullptr;
  NormOptions norm_options_;
};

/// y = x·Wᵀ + b with W [out, in] split over its columns; the bias is whole on every rank.
class RowParallelLinear : public Module {
 public:
  RowParallelLinear(Module* parent, std::string_view name, const TransformerConfig& config, const Axis& tp, std::int64_t in, std::int64_t out);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  Parameter& weight_;
  Parameter* bias_ = nullptr;
};

}  // namespace megatron
