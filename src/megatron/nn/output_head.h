// The output head of a language model: the projection onto the vocabulary, with its loss in
// training and its logits in generation. A model may have several heads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "megatron/nn/loss.h"
#include "megatron/nn/microbatch.h"
#include "megatron/nn/module.h"

namespace megatron {

struct Rank;
struct TransformerConfig;

/// The weight [padded vocabulary, h] of the output: its own, or under their name the word
/// embeddings.
class OutputLayer : public Module {
 public:
  OutputLayer(Module* parent, std::string_view name, ParameterSpec spec, const Rank& rank);
  Parameter& weight;
};

/// The weight of an untied output layer.
ParameterSpec output_weight_spec(const TransformerConfig& config, std::int64_t vocab_pad_multiple);

/// The head over `weight`, whose rows are split over tp. Every call is collective over tp.
class OutputHead {
 public:
  OutputHead(const TransformerConfig& config, const Rank& rank, Parameter& weight)
      : config_(config), rank_(rank), weight_(weight) {}

  /// The loss of a microbatch ("labels", "loss_mask" [b, s]) from the decoder's output [s, b, h],
  /// or this rank's slice of the sequence with `sequence_parallel`.
  StepOutput loss(const at::Tensor& decoded_sbh, const Microbatch& microbatch,
                  bool sequence_parallel, const LossGradient& loss_gradient) const;

  /// The logits [b, s, vocab_size] float32, without padding, of hidden rows [s, b, h].
  at::Tensor logits(const at::Tensor& hidden_sbh) const;

 private:
  const TransformerConfig& config_;
  const Rank& rank_;
  Parameter& weight_;
};

}  // namespace megatron
