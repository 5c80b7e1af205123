// A transformer layer and the stack of layers. Pre-norm computes x + f(norm(x)); post-norm (Vaswani
// et al. 2017) computes norm(x + f(x)).
#pragma once

#include <memory>
#include <vector>

#include "megatron/nn/layer_spec.h"
#include "megatron/nn/norm.h"

namespace megatron {

struct TransformerConfig;

/// One layer: a mixer and a feed-forward block with residual adds and norms.
class TransformerLayer : public Module {
 public:
  TransformerLayer(Module* parent, std::string_view name, const TransformerLayerSpec& spec,
                   const LayerArguments& arguments);
  /// Recomputes the parts that the plan says. TransformerBlock recomputes whole layers.
  at::Tensor forward(const at::Tensor& hidden_sbh, const ForwardContext& context);
  std::optional<std::int64_t> layer_index() const override { return layer_index_; }
  /// Returns the number of the layer's group (LayerRecompute::group).
  std::int64_t recompute_group() const { return recompute_.group; }
  /// Returns whether the layer offloads all activations that it keeps. TransformerBlock does that.
  bool is_offloaded() const { return offload_.whole; }
  /// Returns the block of experts of a layer, or null.
  MoeLayer* moe_layer() { return mlp_->moe_layer(); }

 private:
  /// Adds the output of a block to the residual stream, with dropout. Returns the stream and the
  /// input of the next block.
  SumAndNorm add_residual(const at::Tensor& out, const SumAndNorm& input, std::string_view site,
                          const Norm* post_norm, const NormWeights& next_norm,
                          const ForwardContext& context) const;

  at::Tensor forward_mlp(const at::Tensor& input_sbh, const ForwardContext& context);
  at::Tensor forward_blocks(const at::Tensor& hidden_sbh, const ForwardContext& context);

  const TransformerConfig& config_;
  const std::int64_t layer_index_;
  const LayerRecompute recompute_;
  const LayerOffload offload_;
  std::unique_ptr<Mixer> self_attention_;
  std::unique_ptr<Norm> post_self_attn_layernorm_;
  std::unique_ptr<FeedForward> mlp_;
  std::unique_ptr<Norm> post_mlp_layernorm_;
};

/// The layers of this rank's pipeline stages. The last stage also holds the final norm with
/// pre-norm.
class TransformerBlock : public Module {
 public:
  /// `layers` lists the 0-based indices of this rank's layers, in the order of the model.
  TransformerBlock(Module* parent, std::string_view name, const TransformerLayerSpec& spec,
                   const LayerArguments& arguments, const std::vector<std::int64_t>& layers,
                   bool has_final_norm);
  /// Runs `count` layers, starting with the `begin`-th layer that this rank holds.
  at::Tensor forward(at::Tensor hidden_sbh, const ForwardContext& context, std::int64_t begin,
                     std::int64_t count);
  /// Applies the final norm; returns the input with post-norm.
  at::Tensor finish(const at::Tensor& hidden_sbh, const ForwardContext& context) const;
  std::vector<Module*> layers() const;
  /// Returns the modules that UnitHooks see: the layers and the final norm.
  std::vector<Module*> units() const;
  /// Returns the blocks of experts, in the order of the layers.
  std::vector<MoeLayer*> moe_layers() const;
  std::int64_t num_layers() const { return static_cast<std::int64_t>(layers_.size()); }

 private:
  at::Tensor run_layers(at::Tensor hidden_sbh, const ForwardContext& context, std::int64_t begin,
                        std::int64_t end);
  /// Returns the end of the layers that are recomputed together with layer `begin`; `begin` if it
  /// is not recomputed.
  std::int64_t end_of_group(std::int64_t begin, std::int64_t end, bool recomputes_all) const;

  const Rank& rank_;
  const bool distributes_saved_activations_;
  std::vector<std::unique_ptr<TransformerLayer>> layers_;
  std::unique_ptr<Norm> final_layernorm_;
};

}  // namespace megatron
