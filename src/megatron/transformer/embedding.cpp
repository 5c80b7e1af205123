#include "megatron/transformer/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>

#include "megatron/base/error.h"
#include "megatron/parallel/regions.h"
#include "megatron/transformer/autograd_function.h"
#include "megatron/transformer/dropout.h"
#include "megatron/transformer/row_operations.h"
#include "megatron/transformer/weight_init.h"

namespace megatron {
namespace {

/// Ids as rows of this rank's part of a table.
struct LocalIds {
  at::Tensor rows;       ///< any row where elsewhere
  at::Tensor elsewhere;  ///< true where another rank holds the row; undefined when this one holds all
};

LocalIds local_ids(const at::Tensor& ids, const Parameter& weight) {
  if (weight.sharding().split_dim < 0 || weight.axis().size == 1) return {ids, at::Tensor()};
  const std::int64_t count = weight.value().size(0), first = weight.axis().rank * count;
  const at::Tensor elsewhere = (ids < first).logical_or(ids >= first + count);
  return {(ids - first).masked_fill(elsewhere, 0), elsewhere};
}

struct Lookup : torch::autograd::Function<Lookup> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& ids, const at::Tensor& /*anchor*/, Parameter* weight) {
    context->save_for_backward({ids});
    save_pointer(context, "weight", weight);
    const auto [rows, elsewhere] = local_ids(ids, *weight);
    at::Tensor out = at::embedding(weight->precise_value(), rows);
    return elsewhere.defined() ? out.masked_fill_(elsewhere.unsqueeze(-1), 0) : out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto* weight = load_pointer<Parameter>(context, "weight");
    const auto [ids, elsewhere] = local_ids(context->get_saved_variables()[0].reshape({-1}), *weight);
    at::Tensor rows = gradients[0].reshape({ids.numel(), -1});
    if (elsewhere.defined()) rows = rows.masked_fill(elsewhere.unsqueeze(1), 0);
    weight->contribute([ids = ids, rows](at::Tensor& grad, bool fresh) {
      if (fresh) grad.zero_();
      grad.index_add_(0, ids, rows.to(grad.scalar_type()));
    });
    return {at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor embedding_lookup(const at::Tensor& ids, Parameter& weight) { return Lookup::apply(ids, gradient_anchor(), &weight); }

ParameterSpec word_embedding_spec(const TransformerConfig& config, std::int64_t vocab_pad_multiple, StageSharing sharing) {
  return {.sharding = Sharding::vocabulary({config.vocab_size, config.hidden_size}, vocab_pad_multiple),
          .init = embedding_init(config),
          .tags = {.embedding = true, .precise = true},
          .sharing = sharing};
}

LanguageModelEmbedding::LanguageModelEmbedding(Module* parent, const TransformerConfig& config, const Rank& rank,
                                               const ParameterSpec& word_embeddings)
    : Module(parent, "embedding"), config_(config), word_embeddings_(this, "word_embeddings", word_embeddings, rank.tp) {
  if (config.position_embedding_type == PositionEmbedding::learned_absolute) {
    const ParameterSpec spec{.sharding = Sharding::replicated({config.max_position_embeddings, config.hidden_size}),
                             .init = embedding_init(config),
                             .tags = {.precise = true},
                             .sum_over_tp = rank.sequence_parallel};
    position_embeddings_ = std::make_unique<Table>(this, "position_embeddings", spec, rank.tp);
  }
}

at::Tensor LanguageModelEmbedding::forward(const at::Tensor& tokens, const at::Tensor& position_ids, const ForwardContext& context) const {
  const Axis& tp = word_embeddings_.weight.axis();
  at::Tensor hidden_sbh = embedding_lookup(tokens.t(), word_embeddings_.weight);
  hidden_sbh = context.sequence_parallel ? reduce_scatter_to_sequence(hidden_sbh, tp, "word_embeddings")
                                         : reduce_from_split(hidden_sbh, tp, "word_embeddings");
  show_op(context.hooks, word_embeddings_, "", hidden_sbh);
  if (position_embeddings_) {
    const at::Tensor mine = position_ids.expand_as(tokens).narrow(1, context.s_start - context.q_start, hidden_sbh.size(0));
    hidden_sbh = hidden_sbh + embedding_lookup(mine.t(), position_embeddings_->weight);
    show_op(context.hooks, *position_embeddings_, "", hidden_sbh);
  }
  const auto type = word_embeddings_.weight.value().scalar_type();
  hidden_sbh = hidden_sbh.to(config_.fp32_residual_connection ? compute_type(type) : type);
  const at::Tensor dropped = dropout(hidden_sbh, context.dropout(path(), "dropout", config_.hidden_dropout), context.s_start);
  show_op(context.hooks, *this, "dropout", dropped);
  return dropped;
}

}  // namespace megatron
