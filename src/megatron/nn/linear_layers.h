// Linear layers over the tensor-parallel axis: column-parallel (output features split) and
// row-parallel (input features split).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "megatron/config/layer_nodes.h"
#include "megatron/nn/forward_context.h"
#include "megatron/nn/linear.h"
#include "megatron/nn/module.h"
#include "megatron/nn/norm.h"

namespace megatron {

struct Rank;
struct TransformerConfig;

/// y = x·Wᵀ + b with W [out, in] sharded over its rows. The layer can own the weights of the norm
/// before it, under Transformer Engine's names (layer_norm_weight, layer_norm_bias); the enclosing
/// layer then applies the norm. `name` must be a string literal because it also names collectives.
class ColumnParallelLinear : public Module {
 public:
  struct Options {
    std::int64_t in = 0, out = 0;
    std::vector<ShardBlock> blocks;  ///< blocks of the rows, as in Sharding
    std::int64_t repeats = 1;
    bool bias = true;
    bool with_norm = false;
    LayerNode node = LayerNode::none;  ///< the name by which policies know the layer
  };
  ColumnParallelLinear(Module* parent, const char* name, const TransformerConfig& config,
                       const Rank& rank, const Options& options);
  /// Computes y. Collective over tp. Without `add_bias`, the consumer of y must add the bias and
  /// contribute its gradient.
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context,
                     bool add_bias = true) const;
  /// Returns the norm to apply to x, without a weight unless with_norm.
  NormWeights input_norm() const {
    return {norm_weight_, norm_bias_, norm_options_, this, "layer_norm"};
  }
  Parameter& weight() const { return weight_; }
  /// Returns b [out / tp], or null.
  Parameter* bias() const { return bias_; }

 private:
  Parameter* norm_weight_ = nullptr;
  Parameter* norm_bias_ = nullptr;
  Parameter& weight_;
  Parameter* bias_ = nullptr;
  NormOptions norm_options_;
  LinearExchange exchange_;
  LayerNode node_;
};

/// y = x·Wᵀ + b with W [out, in] sharded over its columns. y is summed over tp, and every rank
/// holds the whole bias, which layers have by TransformerConfig::add_bias_linear if they may.
class RowParallelLinear : public Module {
 public:
  RowParallelLinear(Module* parent, const char* name, const TransformerConfig& config,
                    const Rank& rank, std::int64_t in, std::int64_t out,
                    LayerNode node = LayerNode::none, bool may_have_bias = true);
  /// Computes y. Collective over tp.
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const;
  /// Computes y from the activation of x with activated_linear(), which does not save the
  /// activation. Collective over tp.
  at::Tensor forward(const at::Tensor& x, const BiasActivation& activation,
                     const ForwardContext& context) const;

 private:
  LinearExchange exchange(const ForwardContext& context) const;

  Parameter& weight_;
  Parameter* bias_ = nullptr;
  LinearExchange exchange_;
  LayerNode node_;
};

}  // namespace megatron
