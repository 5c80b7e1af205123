// Word and learned position embeddings, with dropout. The vocabulary is split over tp.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/config/transformer_config.h"
#include "megatron/nn/forward_context.h"
#include "megatron/nn/module.h"
#include "megatron/parallel/rank.h"

namespace megatron {

/// Rows of `weight` [vocabulary, h] for ids int64 of any shape: [..., h], zeros for ids whose rows
/// another rank holds. The gradient is added row by row in order.
at::Tensor embedding_lookup(const at::Tensor& ids, Parameter& weight);

/// The word embeddings' weight, wherever a stage declares it.
ParameterSpec word_embedding_spec(const TransformerConfig& config, std::int64_t vocab_pad_multiple,
                                  StageSharing sharing);

class LanguageModelEmbedding : public Module {
 public:
  LanguageModelEmbedding(Module* parent, const TransformerConfig& config, const Rank& rank,
                         const ParameterSpec& word_embeddings);
  /// tokens int64 [b, s], position_ids int64 [b, s] or [1, s] → [s, b, h] in the weights' dtype, or
  /// float32 with
  /// --fp32-residual-connection; with sequence parallelism this rank's slice. Collective over tp.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& position_ids,
                     const ForwardContext& context) const;
  Parameter& word_embeddings() { return word_embeddings_.weight; }

 private:
  struct Table : Module {
    Table(Module* parent, std::string_view name, ParameterSpec spec, const Axis& tp)
        : Module(parent, name), weight(declare("weight", std::move(spec), tp)) {}
    Parameter& weight;
  };
  /// Rows of words and positions [s, b, h] as this rank's layout has them, op by op.
  at::Tensor sum(const at::Tensor& tokens, const at::Tensor& position_ids,
                 const ForwardContext& context) const;
  /// The same with one rounding to `type`, where a rank has the whole tables.
  at::Tensor sum_in_one_pass(const at::Tensor& tokens, const at::Tensor& position_ids,
                             c10::ScalarType type) const;

  const TransformerConfig& config_;
  Table word_embeddings_;
  std::unique_ptr<Table> position_embeddings_;
};

}  // namespace megatron
