#include "megatron/transformer/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>

#include "megatron/base/error.h"
#include "megatron/transformer/autograd_function.h"
#include "megatron/transformer/dropout.h"
#include "megatron/transformer/row_operations.h"
#include "megatron/transformer/weight_init.h"

namespace megatron {
namespace {

struct Lookup : torch::autograd::Function<Lookup> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& ids, const at::Tensor& /*anchor*/, Parameter* weight) {
    context->save_for_backward({ids});
    save_pointer(context, "weight", weight);
    return at::embedding(weight->precise_value(), ids);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor ids = context->get_saved_variables()[0].reshape({-1});
    const at::Tensor rows = gradients[0].reshape({ids.numel(), -1});
    load_pointer<Parameter>(context, "weight")->contribute([ids, rows](at::Tensor& grad, bool fresh) {
      if (fresh) grad.zero_();
      grad.index_add_(0, ids, rows.to(grad.scalar_type()));
    });
    return {at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor embedding_lookup(const at::Tensor& ids, Parameter& weight) { return Lookup::apply(ids, gradient_anchor(), &weight); }

LanguageModelEmbedding::LanguageModelEmbedding(Module* parent, const TransformerConfig& config, const Rank& rank, std::int64_t vocab_pad_multiple)
    : Module(parent, "embedding"),
      config_(config),
      word_embeddings_(this, "word_embeddings", Sharding::vocabulary({config.vocab_size, config.hidden_size}, vocab_pad_multiple),
                       embedding_init(config), rank.tp, /*is_word=*/true) {
  if (config.position_embedding_type == PositionEmbedding::learned_absolute) {
    position_embeddings_ =
        std::make_unique<Table>(this, "position_embeddings", Sharding::replicated({config.max_position_embeddings, config.hidden_size}),
                                embedding_init(config), rank.tp, /*is_word=*/false);
  }
}

at::Tensor LanguageModelEmbedding::forward(const at::Tensor& tokens, const at::Tensor& position_ids, const ForwardContext& context) const {
  at::Tensor hidden_sbh = embedding_lookup(tokens.t(), word_embeddings_.weight);
  show_op(context.hooks, word_embeddings_, "", hidden_sbh);
  if (position_embeddings_) {
    hidden_sbh = hidden_sbh + embedding_lookup(position_ids.expand_as(tokens).t(), position_embeddings_->weight);
    show_op(context.hooks, *position_embeddings_, "", hidden_sbh);
  }
  const auto type = word_embeddings_.weight.value().scalar_type();
  hidden_sbh = hidden_sbh.to(config_.fp32_residual_connection ? compute_type(type) : type);
  const at::Tensor dropped = dropout(hidden_sbh, context.dropout(path(), "dropout", config_.hidden_dropout), context.q_start);
  show_op(context.hooks, *this, "dropout", dropped);
  return dropped;
}

}  // namespace megatron
