// A layer is a specification: which mixer and which feed-forward block stand in its two slots. Models choose; the layer does not ask.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string_view>

#include "megatron/config/transformer_config.h"
#include "megatron/parallel/rank.h"
#include "megatron/transformer/forward_context.h"
#include "megatron/transformer/module.h"

namespace megatron {

/// What every block of a layer is built from. `config` and `rank` outlive the model.
struct LayerArguments {
  const TransformerConfig& config;
  const Rank& rank;
  std::int64_t layer_index = 0;  ///< 0-based, in the whole model
  bool norm_inside = true;       ///< pre-norm: the block's first linear carries the norm
};

struct BlockOutput {
  at::Tensor out;         ///< [s, b, h], before dropout and residual
  at::Tensor normalised;  ///< what the block's first linear saw (residual of --apply-residual-connection-post-layernorm)
};

/// A block that mixes positions: attention now, state-space layers later.
class Mixer : public Module {
 public:
  using Module::Module;
  virtual BlockOutput forward(const at::Tensor& hidden_sbh, const ForwardContext& context) = 0;
};

/// A block that works on each position: MLP now, mixture of experts later.
class FeedForward : public Module {
 public:
  using Module::Module;
  virtual BlockOutput forward(const at::Tensor& hidden_sbh, const ForwardContext& context) = 0;
};

struct TransformerLayerSpec {
  std::function<std::unique_ptr<Mixer>(Module* parent, const LayerArguments&)> self_attention;
  std::function<std::unique_ptr<FeedForward>(Module* parent, const LayerArguments&)> mlp;
};

}  // namespace megatron
