// Word and learned position embeddings, with dropout. The vocabulary is split over tp.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "megatron/nn/forward_context.h"
#include "megatron/nn/module.h"
#include "megatron/parallel/axis.h"

namespace megatron {

struct Rank;
struct TransformerConfig;

/// Returns the rows of `weight` [vocabulary, h] for int64 ids of any shape, as [..., h]. Rows that
/// another rank holds are zero. Backward adds the gradient row by row in order.
at::Tensor embedding_lookup(const at::Tensor& ids, Parameter& weight);

/// Returns the declaration of the word embeddings for any stage that holds them.
ParameterSpec word_embedding_spec(const TransformerConfig& config, std::int64_t vocab_pad_multiple,
                                  StageSharing sharing);

/// Word embeddings, optional learned position embeddings, and dropout.
class LanguageModelEmbedding : public Module {
 public:
  LanguageModelEmbedding(Module* parent, const TransformerConfig& config, const Rank& rank,
                         const ParameterSpec& word_embeddings);
  /// Embeds tokens int64 [b, s] at position_ids int64 [b, s] or [1, s]. Returns [s, b, h] in the
  /// weights' dtype, or in float32 with --fp32-residual-connection. With sequence parallelism it
  /// returns this rank's slice of the sequence. Collective over tp.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& position_ids,
                     const ForwardContext& context) const;
  Parameter& word_embeddings() { return word_embeddings_.parameter; }

 private:
  /// Adds word and position embeddings [s, b, h] operator by operator, in the layout of this rank.
  at::Tensor sum(const at::Tensor& tokens, const at::Tensor& position_ids,
                 const ForwardContext& context) const;
  /// Adds word and position embeddings with one rounding to `type`. The rank must hold the whole
  /// tables.
  at::Tensor sum_in_one_pass(const at::Tensor& tokens, const at::Tensor& position_ids,
                             c10::ScalarType type) const;

  const TransformerConfig& config_;
  ParameterModule word_embeddings_;
  std::unique_ptr<ParameterModule> position_embeddings_;
};

}  // namespace megatron
