// b samples, s positions, h hidden channels, v vocabulary.
#include "megatron/models/gpt_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

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
        if (arguments.config.kind(arguments.layer_index).has_experts())
          return std::make_unique<MoeLayer>(parent, "mlp", arguments);
        return std::make_unique<Mlp>(parent, "mlp", arguments);
      }};
}

class GptModel : public LanguageModel {
 public:
  GptModel(const TransformerConfig& config, const Rank& rank, const MakeModelOptions& options,
           ModelPart part)
      : LanguageModel(nullptr, ""),
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

  std::vector<ActivationSpec> input_specs(std::int64_t chunk,
                                          const Microbatch& microbatch) const override {
    if (!this->chunk(chunk).receives_hidden) return {};
    return {hidden_spec(microbatch)};
  }

  std::vector<ActivationSpec> output_specs(std::int64_t chunk,
                                           const Microbatch& microbatch) const override {
    if (!this->chunk(chunk).sends_hidden) return {};
    return {hidden_spec(microbatch)};
  }

  StageOutput forward_chunk(std::int64_t chunk, const Microbatch& microbatch, const Activations& in,
                            bool training) override {
    if (this->chunk(chunk).is_empty()) return {};
    const at::Tensor &tokens = microbatch.at("tokens"), &positions = microbatch.at("position_ids");
    ForwardContext context{
        .seed = rank_.seed, .training = training, .sample_ordinals = microbatch.sample_ordinals};
    if (microbatch.has("document_ids")) context.document_ids = microbatch.at("document_ids");
    const Axis& cp = context_axis(microbatch, rank_);
    if (cp.size > 1 || microbatch.packed) {
      auto placement = std::make_shared<SequencePlacement>(placement_of(microbatch, cp.size));
      placement->move_to(rank_.device);
      context.cp = &cp;
      context.placement = std::move(placement);
    }
    if (config_.moe.num_experts > 0) context.lengths = microbatch.lengths;
    context.sequence_parallel = rank_.sequence_parallel;
    context.recomputes_all_layers = microbatch.recomputes_all_layers;
    if (microbatch.has("aux_loss_gradient"))
      context.aux_loss_gradient = microbatch.at("aux_loss_gradient");
    const at::Tensor hidden_sbh = hidden(this->chunk(chunk), tokens, positions, in, context);
    if (!this->chunk(chunk).stage.has_output) return {.activations = {hidden_sbh}, .loss = {}};
    StepOutput output = head().loss(hidden_sbh, microbatch, context.sequence_parallel,
                                    announced_gradient(microbatch));
    notify_op(unit_hooks_, *this, "loss", output.loss_sum);
    return {.activations = {}, .loss = std::move(output)};
  }

  at::Tensor logits(const at::Tensor& ids, std::int64_t start, KvCache* kv_cache,
                    bool last_token_only) override {
    return forward_inference_chunk(0,
                                   {.tokens = ids,
                                    .start = start,
                                    .kv_cache = kv_cache,
                                    .last_token_only = last_token_only},
                                   {})
        .front();
  }

  Activations forward_inference_chunk(std::int64_t chunk, const InferenceInput& pass,
                                      const Activations& in) override {
    if (this->chunk(chunk).is_empty()) return {};
    const at::NoGradGuard no_grad;
    const at::Tensor tokens = pass.tokens.to(rank_.device);
    if (pass.kv_cache != nullptr)
      pass.kv_cache->layers.resize(static_cast<std::size_t>(config_.num_layers));
    ForwardContext context{.seed = rank_.seed, .kv_cache = pass.kv_cache, .q_start = pass.start};
    const at::Tensor positions =
        at::arange(pass.start, pass.start + tokens.size(1), tokens.options().dtype(at::kLong))
            .unsqueeze(0);
    const at::Tensor hidden_sbh = hidden(this->chunk(chunk), tokens, positions, in, context);
    if (!this->chunk(chunk).stage.has_output) return {hidden_sbh};
    return {head().logits(pass.last_token_only ? hidden_sbh.narrow(0, hidden_sbh.size(0) - 1, 1)
                                               : hidden_sbh)};
  }

 private:
  const ModelChunk& chunk(std::int64_t index) const {
    return part_.chunks[static_cast<std::size_t>(index)];
  }

  at::Tensor hidden(const ModelChunk& chunk, const at::Tensor& tokens, const at::Tensor& positions,
                    const Activations& in, ForwardContext& context) {
    if (rotary_) {
      std::tie(context.rotary_cos, context.rotary_sin) = tables(positions.t().reshape({-1}));
    }
    context.hooks = unit_hooks_;
    place_rows(tokens.size(1), context);
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

  /// Sets the place of this rank's hidden rows among the `rows` rows of the microbatch.
  void place_rows(std::int64_t rows, ForwardContext& context) const {
    context.row_positions = {.first = context.q_start};
    RowsInSequences places;
    if (context.placement != nullptr) {
      const auto& runs = context.placement->runs_of[static_cast<std::size_t>(context.cp->rank)];
      places = rows_in_sequences(runs, *context.placement);
      context.row_positions.each = places.positions.to(rank_.device);
      if (context.placement->is_packed() && context.training) {
        context.row_positions.sequences = places.sequences.to(rank_.device);
        context.row_positions.ordinals =
            context.sample_ordinals.index_select(0, context.row_positions.sequences);
      }
    }
    if (!context.lengths.empty()) {
      const bool is_packed = context.placement != nullptr && context.placement->is_packed();
      at::Tensor lengths = at::tensor(context.lengths, at::kLong);
      if (is_packed) lengths = lengths.index_select(0, places.sequences).unsqueeze(1);
      if (!places.positions.defined()) places.positions = at::arange(rows, at::kLong);
      context.row_positions.padding = (places.positions.unsqueeze(1) >= lengths).to(rank_.device);
    }
    if (!context.sequence_parallel) return;
    MEGATRON_CHECK(rows % rank_.tp.size == 0, "a sequence of ", rows,
                   " cannot be split over tp=", rank_.tp.size);
    const std::int64_t own = rows / rank_.tp.size;
    context.first_row = rank_.tp.rank * own;
    context.row_positions = context.row_positions.slice(context.first_row, own);
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
  ActivationSpec hidden_spec(const Microbatch& microbatch) const {
    const at::Tensor& tokens = microbatch.at("tokens");
    return {"hidden",
            {tokens.size(1) / (rank_.sequence_parallel ? rank_.tp.size : 1), tokens.size(0),
             config_.hidden_size},
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

std::unique_ptr<LanguageModel> make_gpt_model(const TransformerConfig& config, const Rank& rank,
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

std::unique_ptr<LanguageModel> make_gpt_model(const TransformerConfig& config, const Rank& rank,
                                              std::int64_t vocab_pad_multiple) {
  return make_gpt_model(config, rank, MakeModelOptions{.vocab_pad_multiple = vocab_pad_multiple});
}

}  // namespace megatron
