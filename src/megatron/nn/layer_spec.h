// Layer specifications: the mixer and the feed-forward block of a layer. The model chooses them and
// the layer calls them through their interfaces.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "megatron/config/offload_plan.h"
#include "megatron/config/recompute_plan.h"
#include "megatron/nn/forward_context.h"
#include "megatron/nn/module.h"
#include "megatron/nn/norm.h"

namespace megatron {

struct Rank;
struct TransformerConfig;
class MoeLayer;

/// The constructor arguments of a block. `config` and `rank` must outlive the model.
struct LayerArguments {
  const TransformerConfig& config;
  const Rank& rank;
  std::int64_t layer_index = 0;  ///< 0-based index in the whole model
  bool has_input_norm = true;  ///< pre-norm: the block's first linear layer owns the norm's weights
  const RecomputePlan* recompute = nullptr;  ///< read during construction; null: no recomputation

  const OffloadPlan* offload = nullptr;  ///< read during construction; null: nothing is offloaded

  LayerOffload layer_offload() const {
    return offload != nullptr ? offload->of(layer_index) : LayerOffload{};
  }
  LayerRecompute layer_recompute() const {
    return recompute != nullptr ? recompute->of(layer_index) : LayerRecompute{};
  }
};

/// One of the two blocks of a layer. Input and output are [s, b, h]; dropout and the residual add
/// follow outside the block.
class Sublayer : public Module {
 public:
  using Module::Module;
  /// Returns the norm that the layer must apply to the input of forward(). Without a weight,
  /// forward() takes the residual stream itself.
  virtual NormWeights input_norm() const = 0;
  virtual at::Tensor forward(const at::Tensor& input_sbh, const ForwardContext& context) = 0;
};

/// A block that mixes positions, such as attention.
class Mixer : public Sublayer {
 public:
  using Sublayer::Sublayer;
};

/// A block that works on each position separately, such as an MLP.
class FeedForward : public Sublayer {
 public:
  using Sublayer::Sublayer;
  /// Returns the block itself if it has experts, else null.
  virtual MoeLayer* moe_layer() { return nullptr; }
};

/// Factories of the blocks of a transformer layer.
struct TransformerLayerSpec {
  std::function<std::unique_ptr<Mixer>(Module* parent, const LayerArguments&)> self_attention;
  std::function<std::unique_ptr<FeedForward>(Module* parent, const LayerArguments&)> mlp;
};

}  // namespace megatron
