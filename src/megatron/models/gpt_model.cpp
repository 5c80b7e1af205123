// b samples, s positions, h hidden channels, v vocabulary.
#include "megatron/models/gpt_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>

#include <optional>

#include "megatron/base/error.h"
#include "megatron/parallel/regions.h"
#include "megatron/transformer/embedding.h"
#include "megatron/transformer/loss.h"
#include "megatron/transformer/matrix_product.h"
#include "megatron/transformer/mlp.h"
#include "megatron/transformer/rotary.h"
#include "megatron/transformer/row_operations.h"
#include "megatron/transformer/self_attention.h"
#include "megatron/transformer/transformer_layer.h"
#include "megatron/transformer/weight_init.h"

namespace megatron {
namespace {

TransformerLayerSpec gpt_layer_spec() {
  return {.self_attention = [](Module* parent, const LayerArguments& arguments) -> std::unique_ptr<Mixer> {
            return std::make_unique<SelfAttention>(parent, "self_attention", arguments);
          },
          .mlp = [](Module* parent, const LayerArguments& arguments) -> std::unique_ptr<FeedForward> {
            return std::make_unique<Mlp>(parent, "mlp", arguments);
          }};
}

/// The untied output projection; its product is part of the loss.
class OutputLayer : public Module {
 public:
  OutputLayer(Module* parent, const TransformerConfig& config, const Rank& rank, std::int64_t vocab_pad_multiple)
      : Module(parent, "output_layer"),
        weight(declare("weight",
                       {.sharding = Sharding::vocabulary({config.vocab_size, config.hidden_size}, vocab_pad_multiple),
                        .init = input_init(config, {config.vocab_size, config.hidden_size}),
                        .tags = {.embedding = true}},
                       rank.tp)) {}
  Parameter& weight;
};

class GptModel : public LanguageModel {
 public:
  GptModel(const TransformerConfig& config, const Rank& rank, std::int64_t vocab_pad_multiple)
      : LanguageModel(nullptr, ""),
        config_(config),
        rank_(rank),
        embedding_(this, config_, rank_, vocab_pad_multiple),
        decoder_(this, "decoder", gpt_layer_spec(), config_, rank_) {
    if (config_.untie_embeddings_and_output_weights) output_layer_.emplace(this, config_, rank_, vocab_pad_multiple);
    const auto type = config_.position_embedding_type;
    if (type == PositionEmbedding::rope || type == PositionEmbedding::yarn) rotary_ = rotary_frequencies(config_);
  }

  const TransformerConfig& config() const override { return config_; }

  StepOutput forward_step(const Microbatch& microbatch, bool training) override {
    const at::Tensor &tokens = microbatch.at("tokens"), &positions = microbatch.at("position_ids"), &mask = microbatch.at("loss_mask");
    ForwardContext context{.seed = rank_.seed, .training = training, .sample_ordinals = microbatch.sample_ordinals};
    if (microbatch.has("document_ids")) context.document_ids = microbatch.at("document_ids");
    context.sequence_parallel = rank_.sequence_parallel;
    const at::Tensor hidden_sbh = whole_for_output(hidden(tokens, positions, context), context);
    const auto by_position = [](const at::Tensor& x_bs) { return x_bs.t().reshape({-1}); };
    const TokenLoss loss =
        linear_cross_entropy(hidden_sbh.reshape({-1, config_.hidden_size}), output_weight(), by_position(microbatch.at("labels")), by_position(mask));
    show_op(unit_hooks_, *this, "loss", loss.loss_sum);
    return {.loss_sum = loss.loss_sum, .count = mask.sum(), .token_losses = loss.token_losses.view({tokens.size(1), tokens.size(0)}).t(), .sums = {}};
  }

  at::Tensor logits(const at::Tensor& ids, std::int64_t start, LayerStates* states, bool last_only) override {
    const at::NoGradGuard no_grad;
    const at::Tensor tokens = ids.to(rank_.device);
    if (states != nullptr) states->slots.resize(decoder_.num_layers());
    ForwardContext context{.seed = rank_.seed, .states = states, .q_start = start};
    const at::Tensor positions = at::arange(start, start + tokens.size(1), tokens.options().dtype(at::kLong)).unsqueeze(0);
    at::Tensor hidden_sbh = hidden(tokens, positions, context);
    if (last_only) hidden_sbh = hidden_sbh.narrow(0, hidden_sbh.size(0) - 1, 1);
    const bool whole = rank_.tp.size == 1;
    const at::Tensor weight = whole ? output_weight().value().narrow(0, 0, config_.vocab_size) : output_weight().value();
    const at::Tensor mine = matrix_product(hidden_sbh.reshape({-1, config_.hidden_size}), weight.t(), compute_type(weight.scalar_type()));
    const at::Tensor logits_sbv = gather_from_split(mine, rank_.tp, "logits").narrow(1, 0, config_.vocab_size);
    return logits_sbv.reshape({hidden_sbh.size(0), tokens.size(0), -1}).transpose(0, 1).to(at::kFloat);
  }

 private:
  at::Tensor hidden(const at::Tensor& tokens, const at::Tensor& positions, ForwardContext& context) {
    if (rotary_) {
      std::tie(context.rotary_cos, context.rotary_sin) = tables(positions.t().reshape({-1}));
    }
    context.hooks = unit_hooks_;
    context.s_start = context.q_start;
    if (context.sequence_parallel) {
      MEGATRON_CHECK(tokens.size(1) % rank_.tp.size == 0, "a sequence of ", tokens.size(1), " cannot be split over tp=", rank_.tp.size);
      context.s_start += rank_.tp.rank * (tokens.size(1) / rank_.tp.size);
    }
    const at::Tensor embedded = run_unit(context.hooks, embedding_, [&] { return embedding_.forward(tokens, positions, context); });
    return decoder_.forward(embedded, context);
  }

  /// The decoder's output with all positions, for the product with this rank's part of the vocabulary.
  at::Tensor whole_for_output(const at::Tensor& hidden_sbh, const ForwardContext& context) const {
    return context.sequence_parallel ? gather_from_sequence(hidden_sbh, rank_.tp, "output_layer")
                                     : copy_to_split(hidden_sbh, rank_.tp, "output_layer");
  }

  /// Tables of s rows when all samples share their positions, else of s·b.
  std::pair<at::Tensor, at::Tensor> tables(const at::Tensor& positions) {
    if (rotary_->inverse.device() != positions.device()) rotary_->inverse = rotary_->inverse.to(positions.device());
    const RotaryTables result = rotary_tables(*rotary_, positions, compute_type(embedding_.word_embeddings().value().scalar_type()));
    return {result.cos, result.sin};
  }

  Parameter& output_weight() { return output_layer_ ? output_layer_->weight : embedding_.word_embeddings(); }

  const TransformerConfig config_;
  const Rank rank_;
  LanguageModelEmbedding embedding_;
  TransformerBlock decoder_;
  std::optional<OutputLayer> output_layer_;
  std::optional<RotaryFrequencies> rotary_;
};

}  // namespace

std::unique_ptr<LanguageModel> make_gpt_model(const TransformerConfig& config, const Rank& rank, std::int64_t vocab_pad_multiple) {
  MEGATRON_CHECK(config.num_layers > 0 && config.hidden_size > 0 && config.vocab_size > 0 && config.kv_channels > 0 && config.ffn_hidden_size > 0,
                 "the model's config is not resolved");
  return std::make_unique<GptModel>(config, rank, vocab_pad_multiple);
}

}  // namespace megatron
