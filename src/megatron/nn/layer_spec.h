// Layer specifications: the blocks of a layer. The model chooses them, and the layer calls them
// through their interface.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/activation_plan.h"
#include "megatron/nn/forward_context.h"
#include "megatron/nn/module.h"
#include "megatron/nn/norm.h"

namespace megatron {

struct Rank;
struct TransformerConfig;

/// The constructor arguments of a block. `config` and `rank` must outlive the model.
struct LayerArguments {
  const TransformerConfig& config;
  const Rank& rank;
  std::int64_t layer_index = 0;    ///< 0-based index in the stack
  std::int64_t layers_before = 0;  ///< layers of the model in front of the stack's first
  bool has_input_norm = true;  ///< pre-norm: the block's first linear layer owns the norm's weights
  bool causal = true;          ///< of a decoder: attention reads no later positions
  /// What the layers of the stack recompute and offload, read during construction. Null: nothing.
  const ActivationPlan* activations = nullptr;

  LayerPolicy policy() const {
    return activations != nullptr ? activations->of(layer_index) : LayerPolicy{};
  }
};

/// A block of a layer, such as attention or an MLP. Input and output are [s, b, h]; dropout and the
/// residual add follow outside the block.
class Sublayer : public Module {
 public:
  /// The names by which policies know the block and the norm of its input.
  struct Nodes {
    LayerNode norm = LayerNode::none, block = LayerNode::none;
  };
  Sublayer(Module* parent, std::string_view name, const Nodes& nodes)
      : Module(parent, name), nodes_(nodes) {}
  const Nodes& nodes() const { return nodes_; }
  /// Returns the norm that the layer must apply to the input of forward(). Without a weight,
  /// forward() takes the residual stream itself.
  virtual NormWeights input_norm() const = 0;
  virtual at::Tensor forward(const at::Tensor& input_sbh, const ForwardContext& context) = 0;

 private:
  Nodes nodes_;
};

/// A tensor that a block publishes for later layers: [s, b, row_shape], in the dtype of the hidden
/// rows.
struct PublishedTensor {
  std::string key;
  std::vector<std::int64_t> row_shape;
};

/// One block of a layer: x + residual_scale · dropout(f(norm(x))).
struct BlockSpec {
  std::string_view name;       ///< of the module
  std::string_view site;       ///< of the dropout, and of the sum in diagnosis
  std::string_view post_norm;  ///< name of the norm of the sum or of the block's output
  std::function<std::unique_ptr<Sublayer>(Module*, std::string_view, const LayerArguments&)> make;
  double residual_scale = 1;
  std::vector<PublishedTensor> publishes = {};
  std::vector<std::string> reads = {};  ///< keys that earlier layers publish
};

template <class Block>
std::unique_ptr<Sublayer> make_sublayer(Module* parent, std::string_view name,
                                        const LayerArguments& arguments) {
  return std::make_unique<Block>(parent, name, arguments);
}

/// The layers of a stack.
struct TransformerLayerSpec {
  /// Returns the blocks, one at least, of a layer of a kind by its index in the stack.
  std::function<std::vector<BlockSpec>(const LayerKind&, std::int64_t layer)> blocks;
  std::string_view final_norm = "final_layernorm";
  /// Returns the name of a layer by its index in the stack; null: layers.i.
  std::function<std::string(std::int64_t layer)> layer_name = {};
};

/// Returns what layers before `border` publish and the layer `border` or a later one reads: what a
/// pipeline stage that begins there receives besides the hidden rows.
std::vector<PublishedTensor> published_across(const TransformerLayerSpec& spec,
                                              const TransformerConfig& config, std::int64_t border);

}  // namespace megatron
