// Heads, which make a loss from the rows that the layers return, and what training minimises. A
// language model's head is the projection onto the vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "megatron/nn/loss.h"
#include "megatron/nn/microbatch.h"

namespace megatron {

struct Axis;
struct ForwardContext;
struct Rank;
struct TransformerConfig;

/// The name of a language model's loss in Megatron's log.
inline constexpr const char* kLanguageModelLoss = "lm loss";
/// The name of the share of the samples whose likeliest class is theirs, which is no loss.
inline constexpr const char* kAccuracy = "accuracy";

/// A head of a model, which has one or several.
class Head {
 public:
  virtual ~Head() = default;
  /// Returns the loss of a microbatch from `hidden` [s, b, h], or this rank's slice of the sequence
  /// with sequence parallelism. `gradient` is what backward of the root will receive, if known.
  /// Collective over tp.
  virtual StepOutput loss(const at::Tensor& hidden_sbh, const Microbatch& microbatch,
                          const ForwardContext& context, const LossGradient& gradient) const = 0;
  /// Returns the logits [b, s, vocab_size] of hidden rows [s, b, h], of a head that has some.
  virtual at::Tensor logits(const at::Tensor& hidden_sbh) const;
  /// Returns what the root of a microbatch is divided by, over all ranks that share it.
  virtual at::Tensor count(const Microbatch& microbatch) const { return microbatch.num_tokens(); }
};

/// Returns the first rows of the samples, [b, h], of what Head::loss() receives, on every rank of
/// tp alike. With context parallelism only the first rank has them. Collective over tp.
at::Tensor first_rows(const at::Tensor& hidden_sbh, const Microbatch& microbatch,
                      const ForwardContext& context, const Axis& tp);

/// The weight of an untied output layer.
ParameterSpec output_weight_spec(const TransformerConfig& config, std::int64_t vocab_pad_multiple);

/// The head over weights whose rows are split over tp. Every call is collective over tp.
class OutputHead : public Head {
 public:
  /// With `may_lack_labels` a negative label is none: its token loss means nothing, and a CPU does
  /// not compute its logits.
  OutputHead(const TransformerConfig& config, const Rank& rank, const OutputWeights& weights,
             bool may_lack_labels = false);

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
  bool may_lack_labels_;
};

/// Returns the sum of the losses of the heads of one model, with the terms of all. Head i has the
/// loss rootᵢ / Cᵢ with Cᵢ = max(count(microbatch), 1), so
///   root = Σᵢ rootᵢ · C₀ / Cᵢ and root / C₀ = Σᵢ rootᵢ / Cᵢ.
StepOutput sum_of_heads(std::span<const Head* const> heads, const at::Tensor& hidden_sbh,
                        const Microbatch& microbatch, const ForwardContext& context,
                        const LossGradient& gradient);

/// What training minimises. Every pipeline stage knows names and count before the forward pass.
struct Objective {
  std::vector<std::string> names = {kLanguageModelLoss};  ///< of StepOutput::terms
  /// Returns what the root of a microbatch is divided by, over all ranks that share it.
  std::function<at::Tensor(const Microbatch&)> count = &Microbatch::num_tokens;
  /// Returns the loss from that of the heads, whose token_losses are differentiable. Empty: it is
  /// the heads' own, whose gradient LossGradient may then announce.
  std::function<StepOutput(const StepOutput& heads, const Microbatch& microbatch)> loss = {};

  /// Returns the loss of a microbatch from that of the heads.
  StepOutput apply(StepOutput heads, const Microbatch& microbatch) const;
};

}  // namespace megatron
