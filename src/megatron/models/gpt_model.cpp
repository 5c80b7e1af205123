// b samples, s positions, h hidden channels, v vocabulary.
#include "megatron/models/gpt_model.h"

#include <optional>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/models/model_part.h"
#include "megatron/nn/embedding.h"
#include "megatron/nn/mlp.h"
#include "megatron/nn/moe/moe_layer.h"
#include "megatron/nn/output_head.h"
#include "megatron/nn/self_attention.h"
#include "megatron/nn/transformer_layer.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/rotary.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

TransformerLayerSpec gpt_layer_spec() {
  return {
      .self_attention = [](Module* parent,
                           const LayerArguments& arguments) -> std::unique_ptr<Mixer> {
        return std::make_unique<SelfAttention>(parent, "self_attention", arguments);
      },
      .mlp = [](Module* parent, const LayerArguments& arguments) -> std::unique_ptr<FeedForward> {
        if (arguments.config.moe.has_experts(arguments.layer_index))
          return std::make_unique<MoeLayer>(parent, "mlp", arguments);
        return std::make_unique<Mlp>(parent, "mlp", arguments);
      }};
}

class GptModel : public Model {
 public:
  GptModel(const TransformerConfig& config, const Rank& rank, const MakeModelOptions& options,
           ModelPart part)
      : Model(nullptr, ""),
        config_(config),
        rank_(rank),
        part_(std::move(part)),
        dtype_(options.dtype),
        offload_store_(options.offload_store),
        smallest_offloaded_(options.offload != nullptr ? options.offload->min_elements : 0) {
    const bool is_shared =
        !config_.untie_embeddings_and_output_weights && part_.has_ends_on_other_ranks;
    const auto shared = [&](StageSharing sharing) {
      return word_embedding_spec(config_, options.vocab_pad_multiple,
                                 is_shared ? sharing : StageSharing::none);
    };
    if (part_.has_embedding)
      embedding_.emplace(this, config_, rank_, shared(StageSharing::original));
    decoder_.emplace(this, "decoder", gpt_layer_spec(),
                     LayerArguments{.config = config_,
                                    .rank = rank_,
                                    .recompute = options.recompute,
                                    .offload = options.offload},
                     part_.layers, part_.has_output);
    if (part_.has_output && config_.untie_embeddings_and_output_weights) {
      output_layer_.emplace(this, "output_layer",
                            output_weight_spec(config_, options.vocab_pad_multiple), rank_);
    } else if (part_.has_output && !part_.has_embedding) {
      output_layer_.emplace(this, "embedding.word_embeddings", shared(StageSharing::copy), rank_);
    }
    const auto type = config_.position_embedding_type;
    if (type == PositionEmbedding::rope || type == PositionEmbedding::yarn)
      rotary_ = rotary_frequencies(config_);
    visit([this](Module& module) {
      if (!module.parameters().empty()) weight_ = module.parameters().front().get();
    });
  }

  const TransformerConfig& config() const override { return config_; }
  std::int64_t num_chunks() const override {
    return static_cast<std::int64_t>(part_.chunks.size());
  }

  std::vector<Module*> units() override {
    std::vector<Module*> units = decoder_->units();
    if (embedding_) units.insert(units.begin(), &*embedding_);
    return units;
  }

  std::vector<Module*> layers() override { return decoder_->layers(); }

  std::vector<MoeLayer*> moe_layers() override { return decoder_->moe_layers(); }

  std::vector<ActivationSpec> input_specs(std::int64_t chunk, const Pass& pass) const override {
    if (!this->chunk(chunk).receives_hidden) return {};
    return {hidden_spec(pass)};
  }

  std::vector<ActivationSpec> output_specs(std::int64_t chunk, const Pass& pass) const override {
    if (!this->chunk(chunk).sends_hidden) return {};
    return {hidden_spec(pass)};
  }

  StageOutput forward_chunk(std::int64_t chunk, const Pass& pass, const Activations& in) override {
    if (this->chunk(chunk).is_empty()) return {};
    ForwardContext context = forward_context(pass, config_, rank_);
    const at::Tensor hidden_sbh = hidden(this->chunk(chunk), pass, in, context);
    if (!this->chunk(chunk).stage.has_output) return {.activations = {hidden_sbh}};
    return output(hidden_sbh, pass, context);
  }

 private:
  const ModelChunk& chunk(std::int64_t index) const {
    return part_.chunks[static_cast<std::size_t>(index)];
  }

  /// Returns what a pass wants of the last stage.
  StageOutput output(const at::Tensor& hidden_sbh, const Pass& pass,
                     const ForwardContext& context) {
    const auto loss = [&] {
      return head().loss(hidden_sbh, pass.microbatch, context.sequence_parallel,
                         announced_gradient(pass.microbatch));
    };
    switch (pass.wants) {
      case Wants::loss: {
        StepOutput output = loss();
        notify_op(unit_hooks_, *this, "loss", output.loss_sum);
        return {.loss = std::move(output)};
      }
      case Wants::token_losses:
        return {.result = loss().token_losses.to(at::kFloat)};
      case Wants::last_logits:
        return {.result = head()
                              .logits(last_rows(hidden_sbh, pass.microbatch))
                              .reshape({-1, config_.vocab_size})};
      case Wants::logits:
        return {.result = head().logits(hidden_sbh)};
      case Wants::hidden:
        return {.result = hidden_sbh.transpose(0, 1).to(at::kFloat)};
    }
    throw InternalError("a pass wants nothing");
  }

  at::Tensor hidden(const ModelChunk& chunk, const Pass& pass, const Activations& in,
                    ForwardContext& context) {
    const at::Tensor tokens = pass.microbatch.at("tokens").to(rank_.device),
                     positions = position_ids(pass).to(rank_.device);
    if (rotary_) {
      std::tie(context.rotary_cos, context.rotary_sin) = tables(positions.t().reshape({-1}));
    }
    context.hooks = unit_hooks_;
    MEGATRON_CHECK(in.size() == (chunk.receives_hidden ? 1 : 0), "a stage was given ", in.size(),
                   " activations instead of ", int(chunk.receives_hidden));
    at::Tensor hidden_sbh = chunk.receives_hidden ? in.front() : at::Tensor();
    if (chunk.stage.has_embedding)
      hidden_sbh = run_unit(context.hooks, *embedding_, {}, [&](const at::Tensor&) {
        return embedding_->forward(tokens, positions, context);
      });
    std::optional<OffloadPass> offload;
    if (offload_store_ != nullptr && context.training)
      context.offload = &offload.emplace(*offload_store_, offload_options(context));
    hidden_sbh = decoder_->forward(hidden_sbh, context, chunk.begin, chunk.stage.num_layers);
    context.offload = nullptr;
    return chunk.stage.has_output ? decoder_->finish(hidden_sbh, context) : hidden_sbh;
  }

  OffloadPass::Options offload_options(const ForwardContext& context) const {
    return {.min_elements = smallest_offloaded_,
            .shared = {context.rotary_cos, context.rotary_sin, context.document_ids,
                       context.sample_ordinals, context.row_positions.each,
                       context.row_positions.sequences, context.row_positions.ordinals,
                       context.row_positions.padding}};
  }

  /// On a rank with the whole model, backward follows forward immediately.
  LossGradient announced_gradient(const Microbatch& microbatch) const {
    if (!microbatch.has("loss_gradient")) return {};
    return {.value = microbatch.at("loss_gradient"),
            .accumulates_in_forward =
                part_.chunks.size() == 1 && part_.has_embedding && part_.has_output};
  }

  /// Returns rotary tables of s rows when all samples share their positions, else of s·b rows.
  std::pair<at::Tensor, at::Tensor> tables(const at::Tensor& positions) {
    if (rotary_->inverse.device() != positions.device())
      rotary_->inverse = rotary_->inverse.to(positions.device());
    const RotaryTables result = rotary_tables(*rotary_, positions, compute_type(params_dtype()));
    return {result.cos, result.sin};
  }

  OutputHead head() {
    return {config_, rank_, output_layer_ ? output_layer_->weight : embedding_->word_embeddings()};
  }

  /// Returns the dtype of the model's weights.
  c10::ScalarType params_dtype() const { return weight_ != nullptr ? weight_->dtype() : dtype_; }

  /// Returns the shape of the hidden rows between layers; with sequence parallelism, of this rank's
  /// slice.
  ActivationSpec hidden_spec(const Pass& pass) const {
    const at::Tensor& tokens = pass.microbatch.at("tokens");
    return {"hidden",
            {tokens.size(1) / (is_sequence_parallel(pass, rank_) ? rank_.tp.size : 1),
             tokens.size(0), config_.hidden_size},
            config_.fp32_residual_connection ? compute_type(params_dtype()) : params_dtype()};
  }

  const TransformerConfig config_;
  const Rank rank_;
  const ModelPart part_;
  std::optional<LanguageModelEmbedding> embedding_;
  std::optional<TransformerBlock> decoder_;
  std::optional<OutputLayer> output_layer_;
  std::optional<RotaryFrequencies> rotary_;
  const c10::ScalarType dtype_;
  OffloadStore* const offload_store_;  ///< null: activations stay
  const std::int64_t smallest_offloaded_;
  const Parameter* weight_ = nullptr;  ///< any weight; null on a rank that holds none
};

}  // namespace

std::unique_ptr<Model> make_gpt_model(const TransformerConfig& config, const Rank& rank,
                                      const MakeModelOptions& options) {
  MEGATRON_CHECK(config.num_layers > 0 && config.hidden_size > 0 && config.vocab_size > 0 &&
                     config.kv_channels > 0 && config.ffn_hidden_size > 0,
                 "the config is not resolved: ", config.num_layers, " layers, hidden size ",
                 config.hidden_size, ", ffn_hidden_size ", config.ffn_hidden_size);
  const PipelineLayout layout =
      options.layout != nullptr ? *options.layout : single_stage_layout(config.num_layers);
  ModelPart part = model_part(layout, options.layout != nullptr ? rank.pp.rank : 0);
  return std::make_unique<GptModel>(config, rank, options, std::move(part));
}

std::unique_ptr<Model> make_gpt_model(const TransformerConfig& config, const Rank& rank,
                                      std::int64_t vocab_pad_multiple) {
  return make_gpt_model(config, rank, MakeModelOptions{.vocab_pad_multiple = vocab_pad_multiple});
}

}  // namespace megatron
