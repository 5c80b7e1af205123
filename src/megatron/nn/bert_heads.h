// The heads of BERT (Devlin et al. 2018) under Megatron's names: masked tokens, and the class of a
// sequence.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "megatron/nn/head.h"
#include "megatron/nn/norm.h"

namespace megatron {

/// The name of the binary head's loss in Megatron's log: sentence order prediction.
inline constexpr const char* kSentenceOrderLoss = "sop loss";

/// W [out, h] and b [out], whole on every rank of tp; `sums_gradients`: for other rows on each.
struct Dense : Module {
  Dense(Module* parent, std::string_view path, const TransformerConfig& config, const Rank& rank,
        std::int64_t out, bool sums_gradients = false);
  Parameter &weight, &bias;
};

/// Predicts masked tokens: logits = norm(gelu(dense(hidden))) · Wᵀ + b.
class MaskedLmHead : public Head {
 public:
  /// `weight` is that of the word embeddings or of an untied output layer. Declares the others
  /// below `parent`: lm_head.dense, lm_head.layer_norm and output_layer.bias.
  MaskedLmHead(Module* parent, const TransformerConfig& config, const Rank& rank, Parameter& weight,
               std::int64_t vocab_pad_multiple);
  /// Reads "labels", which may be negative where "loss_mask" is 0.
  StepOutput loss(const at::Tensor& hidden_sbh, const Microbatch& microbatch,
                  const ForwardContext& context, const LossGradient& gradient) const override;
  at::Tensor logits(const at::Tensor& hidden_sbh) const override;

 private:
  /// Returns the rows that the projection onto the vocabulary reads.
  at::Tensor transformed(const at::Tensor& hidden_sbh) const;

  Dense dense_;
  Norm layer_norm_;
  ParameterModule output_bias_;
  OutputHead output_;
};

/// Predicts which of two classes a sequence has from its first row: logits = W·tanh(dense(row)) +
/// b. The loss is a mean over samples.
class BinaryHead : public Head {
 public:
  /// Declares binary_head and pooler.dense below `parent`.
  BinaryHead(Module* parent, const TransformerConfig& config, const Rank& rank);
  /// Reads the classes "is_random", int64 [b]. With context parallelism the rank with the first row
  /// has the loss, and the others have zeros.
  StepOutput loss(const at::Tensor& hidden_sbh, const Microbatch& microbatch,
                  const ForwardContext& context, const LossGradient& gradient) const override;
  at::Tensor count(const Microbatch& microbatch) const override;

 private:
  const Rank& rank_;
  Dense classes_, pooler_;
};

}  // namespace megatron
