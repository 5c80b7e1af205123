// The output head of a language model: the projection onto the vocabulary, with its loss in
// training and its logits in generation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "megatron/nn/head.h"

namespace megatron {

struct Rank;
struct TransformerConfig;

/// The weight of an untied output layer.
ParameterSpec output_weight_spec(const TransformerConfig& config, std::int64_t vocab_pad_multiple);

/// The head over weights whose rows are split over tp. Every call is collective over tp.
class OutputHead : public Head {
 public:
  OutputHead(const TransformerConfig& config, const Rank& rank, const OutputWeights& weights);

  /// Reads "labels" and "loss_mask" [b, s].
  StepOutput loss(const at::Tensor& decoded_sbh, const Microbatch& microbatch,
                  const ForwardContext& context, const LossGradient& gradient) const override;

  /// The logits [b, s, vocab_size] float32, without padding, of hidden rows [s, b, h].
  at::Tensor logits(const at::Tensor& hidden_sbh) const override;

 private:
  /// Scales hidden rows, which scales their logits.
  at::Tensor scaled(const at::Tensor& hidden) const;

  const TransformerConfig& config_;
  const Rank& rank_;
  OutputWeights weights_;
};

}  // namespace megatron
