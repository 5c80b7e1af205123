#include "megatron/nn/transformer_layer.h"

#include <optional>
#include <string>

#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/nn/recomputed_block.h"
#include "megatron/ops/recomputed_outputs.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

LayerArguments with_norm_placement(LayerArguments arguments) {
  arguments.has_input_norm = arguments.config.norm_placement == NormPlacement::pre;
  return arguments;
}

std::unique_ptr<Norm> post_norm(Module* parent, std::string_view name,
                                const LayerArguments& arguments) {
  if (arguments.config.norm_placement == NormPlacement::pre) return nullptr;
  return std::make_unique<Norm>(parent, name, arguments.config, arguments.config.hidden_size,
                                arguments.rank);
}

}  // namespace

TransformerLayer::TransformerLayer(Module* parent, std::string_view name,
                                   const TransformerLayerSpec& spec,
                                   const LayerArguments& arguments)
    : Module(parent, name),
      config_(arguments.config),
      layer_index_(arguments.layer_index),
      recompute_(arguments.layer_recompute()),
      offload_(arguments.layer_offload()),
      self_attention_(spec.self_attention(this, with_norm_placement(arguments))),
      post_self_attn_layernorm_(post_norm(this, "post_self_attn_layernorm", arguments)),
      mlp_(spec.mlp(this, with_norm_placement(arguments))),
      post_mlp_layernorm_(post_norm(this, "post_mlp_layernorm", arguments)) {}

SumAndNorm TransformerLayer::add_residual(const at::Tensor& out, const SumAndNorm& input,
                                          std::string_view site, const Norm* post_norm,
                                          const NormWeights& next_norm,
                                          const ForwardContext& context) const {
  const at::Tensor& residual =
      config_.apply_residual_connection_post_layernorm ? input.normalised : input.sum;
  SumAndNorm both =
      dropout_add_norm(residual, out, context.dropout(path(), site, config_.hidden_dropout),
                       post_norm != nullptr ? post_norm->weights() : next_norm);
  notify_op(context.hooks, *this, site, both.sum);
  if (post_norm == nullptr) return both;
  notify_op(context.hooks, *post_norm, "", both.normalised);
  return {both.normalised, both.normalised};
}

at::Tensor TransformerLayer::forward(const at::Tensor& hidden_sbh, const ForwardContext& context) {
  if (context.replay != nullptr) return forward_blocks(hidden_sbh, context);
  RecomputedOutputs norms;
  const SavedTensorHooksScope scope(recompute_.layernorm ? &norms : nullptr);
  if (context.offload == nullptr || !offload_.any() || offload_.whole)
    return forward_blocks(hidden_sbh, context);
  OffloadedLayer offloaded(*context.offload);
  ForwardContext own = context;
  own.offloaded_parts = &offload_;
  own.offloaded_layer = &offloaded;
  return forward_blocks(hidden_sbh, own);
}

at::Tensor TransformerLayer::forward_mlp(const at::Tensor& input_sbh,
                                         const ForwardContext& context) {
  const bool is_dense = mlp_->moe_layer() == nullptr;
  const bool recomputes = is_dense ? recompute_.mlp : recompute_.moe;
  const SavedTensorHooksScope scope(is_dense ? context.offload_of(&LayerOffload::mlp) : nullptr);
  if (!recomputes || context.replay != nullptr) return mlp_->forward(input_sbh, context);
  return recomputed_block(
      input_sbh, context,
      [this](const at::Tensor& x, const ForwardContext& own) { return mlp_->forward(x, own); });
}

at::Tensor TransformerLayer::forward_blocks(const at::Tensor& hidden_sbh,
                                            const ForwardContext& context) {
  const SumAndNorm input = [&] {
    const SavedTensorHooksScope scope(context.offload_of(&LayerOffload::attn_norm));
    return norm_with_residual(hidden_sbh, self_attention_->input_norm());
  }();
  const at::Tensor attention = self_attention_->forward(input.normalised, context);
  const SumAndNorm attended = [&] {
    const SavedTensorHooksScope scope(context.offload_of(&LayerOffload::mlp_norm));
    return add_residual(attention, input, "self_attn_bda", post_self_attn_layernorm_.get(),
                        mlp_->input_norm(), context);
  }();
  return add_residual(forward_mlp(attended.normalised, context), attended, "mlp_bda",
                      post_mlp_layernorm_.get(), {}, context)
      .sum;
}

TransformerBlock::TransformerBlock(Module* parent, std::string_view name,
                                   const TransformerLayerSpec& spec,
                                   const LayerArguments& arguments,
                                   const std::vector<std::int64_t>& layers, bool has_final_norm)
    : Module(parent, name),
      rank_(arguments.rank),
      distributes_saved_activations_(arguments.recompute != nullptr &&
                                     arguments.recompute->distributes_saved_activations) {
  LayerArguments own = arguments;
  for (const std::int64_t layer : layers) {
    own.layer_index = layer;
    layers_.push_back(
        std::make_unique<TransformerLayer>(this, "layers." + std::to_string(layer), spec, own));
  }
  const TransformerConfig& config = arguments.config;
  if (has_final_norm && config.norm_placement == NormPlacement::pre)
    final_layernorm_ =
        std::make_unique<Norm>(this, "final_layernorm", config, config.hidden_size, arguments.rank);
}

std::vector<Module*> TransformerBlock::layers() const {
  std::vector<Module*> layers;
  for (const auto& layer : layers_) layers.push_back(layer.get());
  return layers;
}

std::vector<Module*> TransformerBlock::units() const {
  std::vector<Module*> units = layers();
  if (final_layernorm_) units.push_back(final_layernorm_.get());
  return units;
}

std::vector<MoeLayer*> TransformerBlock::moe_layers() const {
  std::vector<MoeLayer*> found;
  for (const auto& layer : layers_) {
    if (MoeLayer* moe = layer->moe_layer()) found.push_back(moe);
  }
  return found;
}

std::int64_t TransformerBlock::end_of_group(std::int64_t begin, std::int64_t end,
                                            bool recomputes_all) const {
  const auto group = [&](std::int64_t i) {
    return layers_[static_cast<std::size_t>(i)]->recompute_group();
  };
  if (group(begin) == 0) return recomputes_all ? begin + 1 : begin;
  std::int64_t last = begin + 1;
  while (last < end && group(last) == group(begin)) ++last;
  return last;
}

at::Tensor TransformerBlock::forward(at::Tensor hidden_sbh, const ForwardContext& context,
                                     std::int64_t begin, std::int64_t count) {
  const std::int64_t end = begin + count;
  const RecomputeOptions options{.distributes_over =
                                     distributes_saved_activations_ ? &rank_.tp : nullptr};
  while (begin < end) {
    const std::int64_t group_end = end_of_group(begin, end, context.recomputes_all_layers);
    // In front of the hooks of a recomputation, which keep the input of the first layer.
    std::optional<OffloadedLayer> offloaded;
    if (context.offload != nullptr && layers_[static_cast<std::size_t>(begin)]->is_offloaded())
      offloaded.emplace(*context.offload);
    const SavedTensorHooksScope scope(offloaded ? &*offloaded : nullptr);
    if (group_end == begin) {
      hidden_sbh = run_layers(hidden_sbh, context, begin, begin + 1);
      ++begin;
      continue;
    }
    const auto run = [this, begin, group_end](const at::Tensor& x, const ForwardContext& own) {
      return run_layers(x, own, begin, group_end);
    };
    hidden_sbh = recomputed_block(hidden_sbh, context, run, options);
    begin = group_end;
  }
  return hidden_sbh;
}

at::Tensor TransformerBlock::run_layers(at::Tensor hidden_sbh, const ForwardContext& context,
                                        std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    TransformerLayer& layer = *layers_[static_cast<std::size_t>(i)];
    hidden_sbh = run_unit(context.hooks, layer, hidden_sbh,
                          [&](const at::Tensor& x) { return layer.forward(x, context); });
  }
  return hidden_sbh;
}

at::Tensor TransformerBlock::finish(const at::Tensor& hidden_sbh,
                                    const ForwardContext& context) const {
  if (!final_layernorm_) return hidden_sbh;
  const at::Tensor normalised =
      run_unit(context.hooks, *final_layernorm_, hidden_sbh,
               [&](const at::Tensor& x) { return final_layernorm_->forward(x); });
  notify_op(context.hooks, *final_layernorm_, "", normalised);
  return normalised;
}

}  // namespace megatron
