// A layer is a specification: which mixer and which feed-forward block stand in its two slots.
// Models choose; the layer does not ask.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string_view>

#include "megatron/config/transformer_config.h"
#include "megatron/nn/forward_context.h"
#include "megatron/nn/module.h"
#include "megatron/nn/norm.h"
#include "megatron/parallel/rank.h"

namespace megatron {

/// What every block of a layer is built from. `config` and `rank` outlive the model.
struct LayerArguments {
  const TransformerConfig& config;
  const Rank& rank;
  std::int64_t layer_index = 0;  ///< 0-based, in the whole model
  bool has_input_norm = true;    ///< pre-norm: the block's first linear owns the norm's weights
};

/// One of the two blocks between which a layer's stream runs. Input and output are [s, b, h], the
/// output before dropout and residual.
class Sublayer : public Module {
 public:
  using Module::Module;
  /// Of what the layer owes `forward` normalised; none when it takes the stream itself.
  virtual NormWeights input_norm() const = 0;
  virtual at::Tensor forward(const at::Tensor& input_sbh, const ForwardContext& context) = 0;
};

/// A block that mixes positions: attention now, state-space layers later.
class Mixer : public Sublayer {
 public:
  using Sublayer::Sublayer;
};

/// A block that works on each position: MLP now, mixture of experts later.
class FeedForward : public Sublayer {
 public:
  using Sublayer::Sublayer;
};

struct TransformerLayerSpec {
  std::function<std::unique_ptr<Mixer>(Module* parent, const LayerArguments&)> self_attention;
  std::function<std::unique_ptr<FeedForward>(Module* parent, const LayerArguments&)> mlp;
};

}  // namespace megatron
