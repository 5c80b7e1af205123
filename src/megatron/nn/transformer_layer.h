// A transformer layer and the stack of layers. Pre-norm computes x + f(norm(x)); post-norm (Vaswani
// et al. 2017) computes norm(x + f(x)); the norm of the output gives x + norm(f(x)).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/nn/layer_spec.h"
#include "megatron/nn/norm.h"

namespace megatron {

struct TransformerConfig;

/// One layer: blocks with residual adds and norms.
class TransformerLayer : public Module {
 public:
  TransformerLayer(Module* parent, std::string_view name, const TransformerLayerSpec& spec,
                   LayerArguments arguments);
  /// Recomputes and offloads the nodes that the policy says. TransformerBlock does so with whole
  /// layers.
  at::Tensor forward(const at::Tensor& hidden_sbh, const ForwardContext& context);
  std::optional<std::int64_t> layer_index() const override { return layer_index_; }
  const LayerPolicy& policy() const { return policy_; }
  const std::vector<std::string>& reads() const { return reads_; }  ///< BlockSpec
  const std::vector<std::string>& publishes() const { return publishes_; }

 private:
  struct Block {
    std::unique_ptr<Sublayer> sublayer;
    std::string site;
    std::unique_ptr<Norm> post_norm = nullptr;
    double residual_scale = 1;
  };

  /// Returns the inputs of the blocks behind the first that read the layer's input; undefined of
  /// those that read the stream.
  std::vector<at::Tensor> parallel_inputs(SumAndNorm& stream, const ForwardContext& context) const;
  at::Tensor run_blocks(const at::Tensor& hidden_sbh, const ForwardContext& context) const;
  /// Adds the output of block `i` to the residual stream, with dropout. Returns the stream and the
  /// input of the next block.
  SumAndNorm add_residual(std::size_t i, const at::Tensor& output, const SumAndNorm& stream,
                          const ForwardContext& context) const;

  const TransformerConfig& config_;
  const std::int64_t layer_index_;
  const LayerPolicy policy_;
  std::vector<Block> blocks_;
  std::vector<std::string> reads_, publishes_;
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
  /// Returns the modules that UnitHooks see: the layers and the final norm.
  std::vector<Module*> units() const;
  std::int64_t num_layers() const { return static_cast<std::int64_t>(layers_.size()); }

 private:
  at::Tensor run_layers(at::Tensor hidden_sbh, const ForwardContext& context, std::int64_t begin,
                        std::int64_t end);
  /// Does the same and keeps the input, and what the layers read that others publish.
  at::Tensor recompute_layers(const at::Tensor& hidden_sbh, const ForwardContext& context,
                              std::int64_t begin, std::int64_t end);
  /// Returns the end of the layers that are recomputed together with layer `begin`; `begin` if it
  /// is not recomputed.
  std::int64_t end_of_group(std::int64_t begin, std::int64_t end, bool recomputes_all) const;

  const Rank& rank_;
  const bool distributes_saved_activations_;
  std::vector<std::unique_ptr<TransformerLayer>> layers_;
  std::unique_ptr<Norm> final_norm_;
};

}  // namespace megatron
