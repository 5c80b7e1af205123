#include "megatron/models/gpt_model.h"

#include "megatron/models/multi_token_prediction.h"
#include "megatron/nn/cross_attention.h"
#include "megatron/nn/embedding.h"
#include "megatron/nn/head.h"
#include "megatron/nn/mlp.h"
#include "megatron/nn/moe/moe_layer.h"
#include "megatron/nn/multi_latent_attention.h"
#include "megatron/nn/self_attention.h"
#include "megatron/nn/ssm/gated_delta_net.h"
#include "megatron/nn/ssm/mamba_mixer.h"
#include "megatron/params/weight_init.h"

namespace megatron {

namespace {

/// Returns whether the output layer is the embedding.
bool is_tied(const PartArguments& arguments) {
  return !arguments.config.untie_embeddings_and_output_weights && arguments.config.has_lm_head();
}

}  // namespace

ParameterSpec word_embeddings(const PartArguments& arguments) {
  ParameterSpec spec =
      word_embedding_spec(arguments.config, arguments.vocab_pad_multiple,
                          is_tied(arguments) ? arguments.ends : arguments.embeddings);
  if (is_tied(arguments)) spec.tags.packing = WeightPacking::copy;  // tokens read it by row
  return spec;
}

ParameterModule output_weight(const PartArguments& arguments, std::string_view name) {
  if (is_tied(arguments))
    return {arguments.parent, "embedding.word_embeddings", word_embeddings(arguments),
            arguments.rank.tp};
  return {arguments.parent, name,
          output_weight_spec(arguments.config, arguments.vocab_pad_multiple), arguments.rank.tp};
}

namespace {

std::unique_ptr<Input> make_embedding(const PartArguments& arguments) {
  return std::make_unique<LanguageModelEmbedding>(arguments.parent, arguments.config,
                                                  arguments.rank, word_embeddings(arguments));
}

class LanguageModelHead : public Head {
 public:
  LanguageModelHead(const PartArguments& arguments, std::string_view name)
      : layer_(output_weight(arguments, name)),
        bias_(arguments.config.add_output_bias ? make_bias(arguments, name) : nullptr),
        projection_(arguments.config, arguments.rank,
                    {layer_.parameter, bias_ ? &bias_->parameter : nullptr}) {}
  StepOutput loss(const at::Tensor& hidden_sbh, const Microbatch& microbatch,
                  const ForwardContext& context, const LossGradient& gradient) const override {
    return projection_.loss(hidden_sbh, microbatch, context, gradient);
  }
  at::Tensor logits(const at::Tensor& hidden_sbh) const override {
    return projection_.logits(hidden_sbh);
  }

 private:
  static std::unique_ptr<ParameterModule> make_bias(const PartArguments& arguments,
                                                    std::string_view name) {
    return std::make_unique<ParameterModule>(
        arguments.parent, name,
        bias_spec(
            Sharding::vocabulary({arguments.config.vocab_size}, arguments.vocab_pad_multiple)),
        arguments.rank.tp, "bias");
  }

  ParameterModule layer_;
  std::unique_ptr<ParameterModule> bias_;
  OutputHead projection_;
};

}  // namespace

std::vector<BlockSpec> decoder_blocks(const LayerKind& kind, std::int64_t /*layer*/) {
  std::vector<BlockSpec> blocks;
  if (kind.is_recurrent()) {
    const bool is_alone = kind.feed_forward == FeedForwardKind::none;
    blocks.push_back({.name = is_alone ? "mixer" : "self_attention",
                      .site = is_alone ? "mamba_bda" : "self_attn_bda",
                      .post_norm = "post_self_attn_layernorm",
                      .make = kind.mixer == MixerKind::mamba ? make_sublayer<MambaMixer>
                                                             : make_sublayer<GatedDeltaNet>});
  }
  if (kind.has_attention())
    blocks.push_back({.name = "self_attention",
                      .site = "self_attn_bda",
                      .post_norm = "post_self_attn_layernorm",
                      .make = kind.mixer == MixerKind::latent_attention
                                  ? make_sublayer<MultiLatentAttention>
                                  : make_sublayer<SelfAttention>});
  if (kind.has_cross_attention)
    blocks.push_back({.name = "cross_attention",
                      .site = "cross_attn_bda",
                      .post_norm = "post_cross_attn_layernorm",
                      .make = make_sublayer<CrossAttention>,
                      .reads = {kEncoderRows}});
  if (kind.feed_forward != FeedForwardKind::none)
    blocks.push_back({.name = "mlp",
                      .site = "mlp_bda",
                      .post_norm = "post_mlp_layernorm",
                      .make = kind.has_experts() ? make_sublayer<MoeLayer> : make_sublayer<Mlp>});
  return blocks;
}

std::unique_ptr<Head> make_output_layer(const PartArguments& arguments, std::string_view name) {
  return std::make_unique<LanguageModelHead>(arguments, name);
}

std::unique_ptr<Head> make_language_model_head(const PartArguments& arguments) {
  return make_output_layer(arguments, "output_layer");
}

ModelSpec gpt_spec(const TransformerConfig& config) {
  ModelSpec spec;
  spec.stacks.push_back(
      StackSpec{.config = config, .layers = {.blocks = decoder_blocks}, .input = make_embedding});
  spec.heads.emplace_back(make_language_model_head);
  add_multi_token_prediction(spec);
  return spec;
}

ModelSpec hybrid_spec(const TransformerConfig& config) {
  ModelSpec spec = gpt_spec(config);
  spec.stacks.front().layers.final_norm = "final_norm";
  return spec;
}

}  // namespace megatron
