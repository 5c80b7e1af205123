// What a stack of layers begins with: word and learned position embeddings, with dropout. The
// vocabulary is split over tp.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "megatron/nn/forward_context.h"
#include "megatron/nn/microbatch.h"
#include "megatron/nn/module.h"
#include "megatron/nn/norm.h"
#include "megatron/parallel/axis.h"

namespace megatron {

struct Rank;
struct TransformerConfig;

/// The interface of what makes the rows that a stack of layers begins with.
class Input : public Module {
 public:
  using Module::Module;
  /// Returns [s, b, h], or this rank's slice of the sequence with sequence parallelism, from the
  /// fields of a microbatch. `position_ids` is int64 [b, s] or [1, s], on the device of the rank.
  /// Collective over tp.
  virtual at::Tensor forward(const Microbatch& microbatch, const at::Tensor& position_ids,
                             const ForwardContext& context) const = 0;
};

/// Returns the rows of `weight` [vocabulary, h] for int64 ids of any shape, as [..., h] or this
/// rank's columns of them. Rows that another rank holds are zero. Backward adds the gradient row by
/// row in order.
at::Tensor embedding_lookup(const at::Tensor& ids, Parameter& weight);

/// Returns the declaration of the word embeddings for any stage that holds them.
ParameterSpec word_embedding_spec(const TransformerConfig& config, std::int64_t vocab_pad_multiple,
                                  StageHolders holders = {});

/// Word embeddings, optional learned position embeddings and embeddings of token types, an optional
/// norm of their sum, and dropout.
class LanguageModelEmbedding : public Input {
 public:
  /// `holders` are those of the other tables.
  LanguageModelEmbedding(Module* parent, const TransformerConfig& config, const Rank& rank,
                         const ParameterSpec& word_embeddings, std::int64_t num_token_types = 0,
                         const StageHolders& holders = {});
  /// Embeds "tokens" int64 [b, s], and "types" if there are token types, by default 0; padding may
  /// have a type above them. Returns rows in the weights' dtype, or in float32 with
  /// --fp32-residual-connection.
  at::Tensor forward(const Microbatch& microbatch, const at::Tensor& position_ids,
                     const ForwardContext& context) const override;

 private:
  /// Adds the embeddings [s, b, h] operator by operator, in the layout of this rank. `types` is
  /// undefined without token types.
  at::Tensor sum(const at::Tensor& tokens, const at::Tensor& position_ids, const at::Tensor& types,
                 const ForwardContext& context) const;
  /// Adds word and position embeddings with one rounding to `type`. The rank must hold the whole
  /// tables.
  at::Tensor sum_in_one_pass(const at::Tensor& tokens, const at::Tensor& position_ids,
                             c10::ScalarType type) const;

  const TransformerConfig& config_;
  ParameterModule word_embeddings_;
  std::unique_ptr<ParameterModule> position_embeddings_, tokentype_embeddings_;
  std::unique_ptr<Norm> norm_;
};

}  // namespace megatron
