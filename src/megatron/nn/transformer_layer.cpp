#include "megatron/nn/transformer_layer.h"

#include <string>

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
  const SumAndNorm input = norm_with_residual(hidden_sbh, self_attention_->input_norm());
  const SumAndNorm attended =
      add_residual(self_attention_->forward(input.normalised, context), input, "self_attn_bda",
                   post_self_attn_layernorm_.get(), mlp_->input_norm(), context);
  return add_residual(mlp_->forward(attended.normalised, context), attended, "mlp_bda",
                      post_mlp_layernorm_.get(), {}, context)
      .sum;
}

TransformerBlock::TransformerBlock(Module* parent, std::string_view name,
                                   const TransformerLayerSpec& spec,
                                   const LayerArguments& arguments,
                                   const std::vector<std::int64_t>& layers, bool has_final_norm)
    : Module(parent, name) {
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

std::vector<Module*> TransformerBlock::units() const {
  std::vector<Module*> units;
  for (const auto& layer : layers_) units.push_back(layer.get());
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

at::Tensor TransformerBlock::forward(at::Tensor hidden_sbh, const ForwardContext& context,
                                     std::int64_t begin, std::int64_t count) {
  for (std::int64_t i = begin; i < begin + count; ++i) {
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
