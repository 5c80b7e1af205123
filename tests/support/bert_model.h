// BERT (Devlin et al. 2018) as the family of a program: a bidirectional encoder of megatron-core's
// BertModel, with heads for masked tokens and for the order of two sentences.
#pragma once

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cstdint>
#include <memory>

#include "megatron/config/data_config.h"
#include "megatron/models/gpt_model.h"
#include "megatron/models/model_family.h"
#include "megatron/nn/bert_heads.h"
#include "megatron/nn/embedding.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace bert {

/// Returns the declaration of the word embeddings, which the stages of the input and of the heads
/// share.
inline ParameterSpec word_embeddings(const PartArguments& arguments) {
  return word_embedding_spec(arguments.config, arguments.vocab_pad_multiple, arguments.ends);
}

inline std::unique_ptr<Input> make_embedding(const PartArguments& arguments) {
  return std::make_unique<LanguageModelEmbedding>(arguments.parent, arguments.config,
                                                  arguments.rank, word_embeddings(arguments),
                                                  /*num_token_types=*/2);
}

class TiedMaskedLmHead : public Head {
 public:
  explicit TiedMaskedLmHead(const PartArguments& arguments)
      : words_(arguments.parent, "embedding.word_embeddings", word_embeddings(arguments),
               arguments.rank.tp),
        head_(arguments.parent, arguments.config, arguments.rank, words_.parameter,
              arguments.vocab_pad_multiple) {}
  StepOutput loss(const at::Tensor& hidden_sbh, const Microbatch& microbatch,
                  const ForwardContext& context, const LossGradient& gradient) const override {
    return head_.loss(hidden_sbh, microbatch, context, gradient);
  }

 private:
  ParameterModule words_;
  MaskedLmHead head_;
};

inline std::unique_ptr<Head> make_masked_lm_head(const PartArguments& arguments) {
  return std::make_unique<TiedMaskedLmHead>(arguments);
}

inline std::unique_ptr<Head> make_binary_head(const PartArguments& arguments) {
  return std::make_unique<BinaryHead>(arguments.parent, arguments.config, arguments.rank);
}

inline void add_fields(Microbatch& microbatch) {
  const at::Tensor tokens = microbatch.at("tokens");
  microbatch.tensors["types"] = at::zeros_like(tokens);
  microbatch.tensors["is_random"] = at::zeros({tokens.size(0)}, tokens.options());
  microbatch.per_position.emplace_back("types");
}

}  // namespace bert

inline ModelSpec bert_spec(const TransformerConfig& config) {
  ModelSpec spec;
  spec.stacks.push_back(StackSpec{.name = "encoder",
                                  .config = config,
                                  .layers = {.blocks = decoder_blocks},
                                  .causal = false,
                                  .input = bert::make_embedding});
  spec.heads = {bert::make_masked_lm_head, bert::make_binary_head};
  spec.objective.names = {kLanguageModelLoss, "sop loss"};
  return spec;
}

/// Returns the families of the library, and BERT.
inline const ModelFamilies& families_with_bert() {
  static const ModelFamilies families = [] {
    ModelFamilies all;
    all.add({.name = "bert",
             .title = "BERT",
             .spec = bert_spec,
             .sample_kind = SampleKind::bert,
             .add_fields = bert::add_fields});
    return all;
  }();
  return families;
}

}  // namespace megatron
