#include "megatron/nn/transformer_layer.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

void observe_norm(const ForwardContext& context, const NormWeights& norm, const SumAndNorm& sums) {
  if (norm.weight != nullptr) observe(context, *norm.owner, norm.op, sums.normalised);
}

/// Returns where the norms of a layer are in a model that has them at `placement`.
NormPlacement placement_in(const LayerKind& kind, NormPlacement placement) {
  if (placement != NormPlacement::output_unless_recurrent) return placement;
  return kind.is_recurrent() ? NormPlacement::pre : NormPlacement::output;
}

}  // namespace

TransformerLayer::TransformerLayer(Module* parent, std::string_view name,
                                   const TransformerLayerSpec& spec, LayerArguments arguments)
    : Module(parent, name),
      config_(arguments.config),
      layer_index_(arguments.layers_before + arguments.layer_index),
      policy_(arguments.policy()) {
  const std::int64_t index = arguments.layer_index;
  const LayerKind kind = config_.kind(index);
  const NormPlacement placement = placement_in(kind, config_.norm_placement);
  const bool norms_inputs = placement == NormPlacement::pre || placement == NormPlacement::sandwich;
  for (const BlockSpec& block : spec.blocks(kind, index)) {
    for (const PublishedTensor& tensor : block.publishes) publishes_.push_back(tensor.key);
    reads_.insert(reads_.end(), block.reads.begin(), block.reads.end());
    arguments.has_input_norm = norms_inputs && !(config_.share_block_norm && !blocks_.empty());
    blocks_.push_back({.sublayer = block.make(this, block.name, arguments),
                       .site = std::string(block.site),
                       .residual_scale = block.residual_scale * config_.residual_multiplier});
    if (placement != NormPlacement::pre)
      blocks_.back().post_norm = std::make_unique<Norm>(this, block.post_norm, config_,
                                                        config_.hidden_size, arguments.rank);
  }
}

at::Tensor TransformerLayer::forward(const at::Tensor& hidden_sbh, const ForwardContext& context) {
  if (context.replay != nullptr || !policy_.has_parts()) return run_blocks(hidden_sbh, context);
  RecomputedOutputs norms;
  const bool recomputes_norms = policy_.recomputed.contains(LayerNode::layernorm);
  const SavedTensorHooksScope scope(recomputes_norms ? &norms : nullptr);
  std::optional<OffloadedLayer> offloaded;
  ForwardContext own = context;
  own.policy = &policy_;
  if (context.offload != nullptr && !policy_.offloaded.empty() && !policy_.offload)
    own.offloaded_layer = &offloaded.emplace(*context.offload);
  return run_blocks(hidden_sbh, own);
}

at::Tensor TransformerLayer::run_blocks(const at::Tensor& hidden_sbh,
                                        const ForwardContext& context) const {
  const Sublayer& first = *blocks_.front().sublayer;
  const NormWeights norm = first.input_norm();
  SumAndNorm stream =
      run_node(context, first.nodes().norm, [&] { return norm_with_residual(hidden_sbh, norm); });
  observe_norm(context, norm, stream);
  const std::vector<at::Tensor> parallel = parallel_inputs(stream, context);
  at::Tensor out;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    out = run_node(
        context, blocks_[i].sublayer->nodes().block,
        parallel[i].defined() ? parallel[i] : stream.normalised,
        [sublayer = blocks_[i].sublayer.get()](const at::Tensor& x, const ForwardContext& own) {
          return sublayer->forward(x, own);
        });
    stream = add_residual(i, out, stream, context);
  }
  return stream.sum;
}

std::vector<at::Tensor> TransformerLayer::parallel_inputs(SumAndNorm& stream,
                                                          const ForwardContext& context) const {
  std::vector<at::Tensor> inputs(blocks_.size());
  for (std::size_t i = 1; i < blocks_.size() && config_.parallel_residual; ++i) {
    const Sublayer& block = *blocks_[i].sublayer;
    const NormWeights norm = block.input_norm();
    inputs[i] = stream.normalised;
    if (norm.weight == nullptr) continue;
    const SumAndNorm own =
        run_node(context, block.nodes().norm, [&] { return norm_with_residual(stream.sum, norm); });
    observe_norm(context, norm, own);
    stream.sum = own.sum;
    inputs[i] = own.normalised;
  }
  return inputs;
}

SumAndNorm TransformerLayer::add_residual(std::size_t i, const at::Tensor& output,
                                          const SumAndNorm& stream,
                                          const ForwardContext& context) const {
  const Block& block = blocks_[i];
  const bool norms_sum = config_.norm_placement == NormPlacement::post;
  const bool has_next = i + 1 < blocks_.size() && !config_.parallel_residual;
  const Sublayer* next = has_next ? blocks_[i + 1].sublayer.get() : nullptr;
  const NormWeights norm = norms_sum         ? block.post_norm->weights()
                           : next != nullptr ? next->input_norm()
                                             : NormWeights{};
  const at::Tensor out =
      block.post_norm && !norms_sum
          ? run_node(context, {*block.post_norm}, [&] { return block.post_norm->forward(output); })
          : output;
  const at::Tensor& residual =
      config_.apply_residual_connection_post_layernorm ? stream.normalised : stream.sum;
  const LayerNode node = next != nullptr ? next->nodes().norm : LayerNode::none;
  const SumAndNorm sums = run_node(context, node, [&] {
    return dropout_add_norm(residual, block.residual_scale == 1 ? out : out * block.residual_scale,
                            context.dropout(path(), block.site, config_.hidden_dropout), norm);
  });
  observe(context, *this, block.site, sums.sum);
  observe_norm(context, norm, sums);
  return norms_sum ? SumAndNorm{sums.normalised, sums.normalised} : sums;
}

TransformerBlock::TransformerBlock(Module* parent, std::string_view name,
                                   const TransformerLayerSpec& spec,
                                   const LayerArguments& arguments,
                                   const std::vector<std::int64_t>& layers, bool has_final_norm)
    : Module(parent, name),
      rank_(arguments.rank),
      distributes_saved_activations_(arguments.activations != nullptr &&
                                     arguments.activations->distributes_saved_activations) {
  LayerArguments own = arguments;
  for (const std::int64_t layer : layers) {
    own.layer_index = layer;
    const std::string name =
        spec.layer_name ? spec.layer_name(layer) : "layers." + std::to_string(layer);
    layers_.push_back(std::make_unique<TransformerLayer>(this, name, spec, own));
  }
  const TransformerConfig& config = arguments.config;
  if (has_final_norm && config.norm_placement != NormPlacement::post)
    final_norm_ =
        std::make_unique<Norm>(this, spec.final_norm, config, config.hidden_size, arguments.rank);
}

std::vector<Module*> TransformerBlock::units() const {
  std::vector<Module*> units;
  for (const auto& layer : layers_) units.push_back(layer.get());
  if (final_norm_) units.push_back(final_norm_.get());
  return units;
}

std::int64_t TransformerBlock::end_of_group(std::int64_t begin, std::int64_t end,
                                            bool recomputes_all) const {
  const auto policy = [&](std::int64_t i) {
    return layers_[static_cast<std::size_t>(i)]->policy();
  };
  if (!policy(begin).full) return recomputes_all ? begin + 1 : begin;
  std::int64_t last = begin + 1;
  while (last < end && policy(last).full && policy(last).joins_previous) ++last;
  return last;
}

at::Tensor TransformerBlock::forward(at::Tensor hidden_sbh, const ForwardContext& context,
                                     std::int64_t begin, std::int64_t count) {
  const std::int64_t end = begin + count;
  while (begin < end) {
    const std::int64_t group_end = end_of_group(begin, end, context.recomputes_all_layers);
    // In front of the hooks of a recomputation, which keep the input of the first layer.
    std::optional<OffloadedLayer> offloaded;
    if (context.offload != nullptr && layers_[static_cast<std::size_t>(begin)]->policy().offload)
      offloaded.emplace(*context.offload);
    const SavedTensorHooksScope scope(offloaded ? &*offloaded : nullptr);
    hidden_sbh = group_end == begin ? run_layers(hidden_sbh, context, begin, begin + 1)
                                    : recompute_layers(hidden_sbh, context, begin, group_end);
    begin = std::max(group_end, begin + 1);
  }
  return hidden_sbh;
}

at::Tensor TransformerBlock::recompute_layers(const at::Tensor& hidden_sbh,
                                              const ForwardContext& context, std::int64_t begin,
                                              std::int64_t end) {
  std::vector<std::string> reads, publishes;
  for (std::int64_t i = begin; i < end; ++i) {
    const TransformerLayer& layer = *layers_[static_cast<std::size_t>(i)];
    for (const std::string& key : layer.reads())
      if (std::ranges::count(publishes, key) + std::ranges::count(reads, key) == 0)
        reads.push_back(key);
    publishes.insert(publishes.end(), layer.publishes().begin(), layer.publishes().end());
  }
  // What the layers read and publish is input and output, so they have tensors of their own.
  ForwardContext outer = context;
  outer.published_tensors = nullptr;
  Tensors inputs{hidden_sbh};
  for (const std::string& key : reads) inputs.push_back(context.published(key));
  const auto run = [=, this](const Tensors& x, ForwardContext own) {
    if (reads.size() + publishes.size() > 0) own.published_tensors = std::make_shared<Published>();
    for (std::size_t i = 0; i < reads.size(); ++i) own.publish(reads[i], x[i + 1]);
    Tensors outputs{run_layers(x.front(), own, begin, end)};
    for (const std::string& key : publishes) outputs.push_back(own.published(key));
    return outputs;
  };
  const Tensors outputs =
      recomputed_block(inputs, outer, run,
                       {.distributes_over = distributes_saved_activations_ ? &rank_.tp : nullptr});
  for (std::size_t i = 0; i < publishes.size(); ++i) context.publish(publishes[i], outputs[i + 1]);
  return outputs.front();
}

std::vector<PublishedTensor> published_across(const TransformerLayerSpec& spec,
                                              const TransformerConfig& config,
                                              std::int64_t border) {
  std::vector<PublishedTensor> published;
  std::vector<std::string> reads;
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    for (const BlockSpec& block : spec.blocks(config.kind(layer), layer)) {
      if (layer < border)
        published.insert(published.end(), block.publishes.begin(), block.publishes.end());
      else
        reads.insert(reads.end(), block.reads.begin(), block.reads.end());
    }
  }
  std::erase_if(published, [&](const PublishedTensor& tensor) {
    return std::ranges::count(reads, tensor.key) == 0;
  });
  return published;
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
  if (!final_norm_) return hidden_sbh;
  return run_node(context, {*final_norm_}, [&] {
    return run_unit(context.hooks, *final_norm_, hidden_sbh,
                    [&](const at::Tensor& x) { return final_norm_->forward(x); });
  });
}

}  // namespace megatron
