#include "megatron/nn/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/dropout.h"
#include "megatron/ops/embedding.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/tensor_parallel_mappings.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/weight_init.h"

namespace megatron {
namespace {

/// Returns the first row of the global table that this rank holds.
std::int64_t first_row(const Parameter& weight) {
  const bool is_split = weight.sharding().splits.front().dim == 0;
  return is_split ? weight.axis().rank * weight.local_shape()[0] : 0;
}

/// Describes `ids` and the table `weight`; no table when `weight` is null.
EmbeddingRows rows_of(const Parameter* weight, const at::Tensor& ids) {
  if (weight == nullptr) return {};
  return {.table = weight->precise_value(),
          .ids = ids,
          .first = first_row(*weight),
          .num_rows = weight->sharding().global_shape[0]};
}

void contribute_rows(Parameter& weight, const at::Tensor& ids, const at::Tensor& dy) {
  const at::Tensor flat = ids.reshape({-1}).contiguous();
  const at::Tensor rows = dy.reshape({flat.numel(), -1}).contiguous();
  weight.contribute([flat, rows, first = first_row(weight)](at::Tensor& grad, bool fresh) {
    if (fresh) grad.zero_();
    embedding_backward_(grad, flat, rows, first);
  });
}

}  // namespace

at::Tensor embedding_lookup(const at::Tensor& ids, Parameter& weight) {
  Recording recording({.name = "EmbeddingBackward", .trains_parameters = weight.is_trained()}, {});
  const EmbeddingRows rows = rows_of(&weight, ids);
  return recording.finish(embedding(rows, {}, rows.table.scalar_type()), {ids},
                          [&weight](BackwardPass& pass) -> Tensors {
                            contribute_rows(weight, pass.saved[0], pass.gradients[0]);
                            return {};
                          });
}

ParameterSpec word_embedding_spec(const TransformerConfig& config, std::int64_t vocab_pad_multiple,
                                  StageHolders holders) {
  return {
      .sharding = Sharding::vocabulary({config.vocab_size, config.hidden_size}, vocab_pad_multiple),
      .init = embedding_init(config),
      .tags = {.embedding = true, .precise = true},
      .holders = std::move(holders)};
}

LanguageModelEmbedding::LanguageModelEmbedding(Module* parent, const TransformerConfig& config,
                                               const Rank& rank,
                                               const ParameterSpec& word_embeddings,
                                               std::int64_t num_token_types,
                                               const StageHolders& holders)
    : Input(parent, "embedding"),
      config_(config),
      word_embeddings_(this, "word_embeddings", word_embeddings, rank.tp) {
  const auto table = [&](std::string_view name, std::int64_t rows) {
    const ParameterSpec spec{
        .sharding = Sharding::replicated({rows, config.hidden_size},
                                         /*sums_gradients=*/rank.sequence_parallel),
        .init = embedding_init(config),
        .tags = {.precise = true},
        .holders = holders};
    return std::make_unique<ParameterModule>(this, name, spec, rank.tp);
  };
  if (config.position_embedding_type == PositionEmbedding::learned_absolute)
    position_embeddings_ = table("position_embeddings", config.max_position_embeddings);
  if (num_token_types > 0) tokentype_embeddings_ = table("tokentype_embeddings", num_token_types);
  if (config.embedding_norm)
    norm_ = std::make_unique<Norm>(this, "layernorm", config, config.hidden_size, rank);
}

at::Tensor LanguageModelEmbedding::forward(const Microbatch& microbatch, const at::Tensor& ids,
                                           const ForwardContext& context) const {
  const at::Tensor position_ids = config_.position_offset > 0 ? ids + config_.position_offset : ids,
                   tokens = microbatch.at("tokens").to(ids.device());
  at::Tensor types;
  if (tokentype_embeddings_)
    types = microbatch.has("types")
                ? microbatch.at("types").clamp_max(
                      tokentype_embeddings_->parameter.sharding().global_shape[0] - 1)
                : at::zeros_like(tokens);
  const auto type = word_embeddings_.parameter.dtype();
  const auto residual_type = config_.fp32_residual_connection ? compute_type(type) : type;
  const bool in_one_pass = word_embeddings_.parameter.axis().size == 1 && !types.defined() &&
                           !observes_ops(context.hooks);
  at::Tensor hidden_sbh = in_one_pass ? sum_in_one_pass(tokens, position_ids, residual_type)
                                      : sum(tokens, position_ids, types, context).to(residual_type);
  if (config_.embedding_multiplier != 1) hidden_sbh = hidden_sbh * config_.embedding_multiplier;
  if (norm_)
    hidden_sbh =
        run_node(context, {*norm_}, [&] { return norm_->forward(hidden_sbh); }).to(residual_type);
  return run_node(context, {*this, "dropout"}, [&] {
    return dropout(hidden_sbh, context.dropout(path(), "dropout", config_.hidden_dropout));
  });
}

at::Tensor LanguageModelEmbedding::sum_in_one_pass(const at::Tensor& tokens,
                                                   const at::Tensor& position_ids,
                                                   c10::ScalarType type) const {
  Parameter* positions = position_embeddings_ ? &position_embeddings_->parameter : nullptr;
  Parameter* words = &word_embeddings_.parameter;
  Recording recording(
      {.name = "EmbeddingSumBackward", .trains_parameters = any_trained({words, positions})}, {});
  const at::Tensor ids = tokens.t(), places = position_ids.expand_as(tokens).t();
  return recording.finish(embedding(rows_of(words, ids), rows_of(positions, places), type),
                          {ids, places}, [words, positions](BackwardPass& pass) -> Tensors {
                            contribute_rows(*words, pass.saved[0], pass.gradients[0]);
                            if (positions != nullptr)
                              contribute_rows(*positions, pass.saved[1], pass.gradients[0]);
                            return {};
                          });
}

at::Tensor LanguageModelEmbedding::sum(const at::Tensor& tokens, const at::Tensor& position_ids,
                                       const at::Tensor& types,
                                       const ForwardContext& context) const {
  const Axis& tp = word_embeddings_.parameter.axis();
  at::Tensor hidden_sbh = run_node(context, {word_embeddings_}, [&] {
    const at::Tensor rows = embedding_lookup(tokens.t(), word_embeddings_.parameter);
    return context.sequence_parallel
               ? reduce_scatter_to_sequence_parallel_region(rows, tp, "word_embeddings")
               : reduce_from_tensor_parallel_region(rows, tp, "word_embeddings");
  });
  const auto add = [&](const ParameterModule& table, const at::Tensor& ids_bs) {
    const at::Tensor mine =
        ids_bs.expand_as(tokens).narrow(1, context.first_row, hidden_sbh.size(0));
    hidden_sbh = run_node(context, {table},
                          [&] { return hidden_sbh + embedding_lookup(mine.t(), table.parameter); });
  };
  if (position_embeddings_) add(*position_embeddings_, position_ids);
  if (tokentype_embeddings_) add(*tokentype_embeddings_, types);
  return hidden_sbh;
}

}  // namespace megatron
