// The heads of BERT (Devlin et al. 2018) under Megatron's names: masked tokens, and the class of a
// sequence, in pretraining and in finetuning.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "megatron/nn/head.h"
#include "megatron/nn/norm.h"

namespace megatron {

/// The name of the binary head's loss in Megatron's log: sentence order prediction.
inline constexpr const char* kSentenceOrderLoss = "sop loss";
/// The field with the first positions of the choices of a sample, int64 [b, choices], which are the
/// same for all samples.
inline constexpr const char* kChoiceStarts = "choice_starts";

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

/// By default Megatron's binary head, which predicts the order of two sentences.
struct ClassHeadOptions {
  std::string path = "binary_head";  ///< of the projection onto classes
  std::int64_t num_outputs = 2;
  std::string label = "is_random";  ///< field of the classes, int64 [b]
  std::string loss_name = kSentenceOrderLoss;
  double dropout = 0;           ///< of what the projection reads
  bool shows_accuracy = false;  ///< report the accuracy beside the loss
};

/// Predicts the class of a sample from its first row: logits = W·dropout(tanh(dense(row))) + b.
/// With kChoiceStarts the first row of each choice gives one logit, and the class is a choice. The
/// loss is a mean over samples.
class ClassHead : public Head {
 public:
  /// Declares the projection and pooler.dense below `parent`; by default Megatron's binary head.
  ClassHead(Module* parent, const TransformerConfig& config, const Rank& rank,
            ClassHeadOptions options = {});
  /// With context parallelism the rank with the first row has the loss, and the others have zeros.
  StepOutput loss(const at::Tensor& hidden_sbh, const Microbatch& microbatch,
                  const ForwardContext& context, const LossGradient& gradient) const override;
  at::Tensor count(const Microbatch& microbatch) const override;

 private:
  /// Returns the rows that the pooler reads, [choices or 1, b, h].
  at::Tensor pooled_rows(const at::Tensor& hidden_sbh, const Microbatch& microbatch,
                         const ForwardContext& context) const;

  const Rank& rank_;
  const ClassHeadOptions options_;
  Dense classes_, pooler_;
};

}  // namespace megatron
